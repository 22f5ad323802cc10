//! Everything that runs: the actors of a node and the server side of a connection.
