//! The rules of mirroring, pure.
