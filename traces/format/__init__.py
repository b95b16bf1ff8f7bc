"""The trace's files: columns, manifest, shards, ids and checks. Begin with schema and manifest."""
