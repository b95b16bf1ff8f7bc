"""What others wrote: read within limits (`json_text`), and shown so that it steers nothing (`visible`)."""
