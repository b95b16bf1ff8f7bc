"""Work that is shared out over processes and machines. Begin with parts."""
