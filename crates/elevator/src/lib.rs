//! Every I/O scheduler, one file each, and the registry that finds them by name
