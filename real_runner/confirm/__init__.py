"""Running policies in turn on real prompts, with a log, an audit and stop rules. Begin with confirm."""
