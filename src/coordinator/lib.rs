//! Event-sourced machines kept in internal topics, pure.
