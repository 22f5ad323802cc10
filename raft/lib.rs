//! What the cluster agrees on: metadata records, decide, replay, image, delta.
