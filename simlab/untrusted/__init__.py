"""Files and texts that others wrote: read within limits (`json_text`), shown so that they steer nothing (`visible`)."""
