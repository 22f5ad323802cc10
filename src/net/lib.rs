//! Sockets: accept loops, framing on streams, the client to other clusters, peer links.
