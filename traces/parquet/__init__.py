"""How much a Parquet file holds, before it is read: `sizes` by its headers; `checks` refuses what is too large."""
