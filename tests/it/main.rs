//! Integration tests: whole clusters, real sockets, temporary folders.

mod cluster;
