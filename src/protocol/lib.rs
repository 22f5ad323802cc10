//! The Kafka wire format: bytes in, structs out. No I/O, no async.
//!
//! The messages are generated from the tables in `schemas/`; `api` joins them to API keys and
//! headers, `frame` to length-prefixed frames.

pub mod api;
pub mod batch;
pub mod compression;
pub mod control;
pub mod error;
pub mod error_code;
pub mod fetch_response;
pub mod frame;
pub mod header;
pub mod ids;
pub mod messages;
pub mod reader;
pub mod record;
pub mod writer;

pub use error::Error;
pub use messages::Message;
pub use reader::Reader;
