//! What goes wrong between this node and a socket.
//!
//! Owns the error of frames, listeners and clients. It never maps to a Kafka code: the one who
//! asked decides what a failed call means.

use std::io;
use std::time::Duration;

use protocol::api::ApiKey;

use crate::span::rounded;

/// Why bytes did not become an answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream failed.
    #[error("The connection failed: {0}.")]
    Io(#[source] io::Error),
    /// A length that is negative or above the limit; nothing after it can be read.
    #[error("A frame cannot be read: {0}.")]
    Frame(#[source] protocol::Error),
    /// The peer closed its side in the middle of a frame.
    #[error("The peer closed the connection inside a frame, {received} bytes after its start.")]
    ClosedInsideFrame {
        /// Bytes of the frame that had come, its prefix included.
        received: usize,
    },
    /// The peer went silent in the middle of a frame.
    #[error(
        "The peer sent nothing for {} inside a frame, {received} bytes after its start.",
        rounded(.after)
    )]
    Stalled {
        /// Bytes of the frame that had come, its prefix included.
        received: usize,
        /// How long it was waited for.
        after: Duration,
    },
    /// Another process listens on the port.
    #[error(
        "Address {address} is in use: stop the process that listens on it, or choose another port \
         (port 0 takes a free one)."
    )]
    PortInUse {
        /// What was to be bound.
        address: String,
    },
    /// The address cannot be bound for another reason.
    #[error("Address {address} cannot be bound: {source}.")]
    Bind {
        /// What was to be bound.
        address: String,
        /// The system's answer.
        source: io::Error,
    },
    /// No connection to the peer could be opened.
    #[error("{peer} cannot be reached: {reason}.")]
    Unreachable {
        /// Its address, or what was known of it.
        peer: String,
        /// Why the last attempt failed.
        reason: String,
    },
    /// The connection ended before the answer came; the request may have been carried out.
    #[error("The connection to {peer} was lost: {reason}.")]
    Disconnected {
        /// The peer's address.
        peer: String,
        /// Why.
        reason: String,
    },
    /// No answer in time; the request may have been carried out.
    #[error("{peer} did not answer within {}.", rounded(.after))]
    TimedOut {
        /// The peer's address.
        peer: String,
        /// The deadline.
        after: Duration,
    },
    /// The peer serves no version of this API that this version of Heliograph speaks.
    #[error("{peer} does not serve {key:?} in a version known here.")]
    Unsupported {
        /// The peer's address.
        peer: String,
        /// The API.
        key: ApiKey,
    },
    /// A request or an answer that is no valid message.
    #[error("A message to or from {peer} is not valid: {source}.")]
    Protocol {
        /// The peer's address.
        peer: String,
        /// What is wrong with it.
        source: protocol::Error,
    },
    /// An answer that belongs to no request.
    #[error("{peer} answered request {got} where {expected} was due.")]
    OutOfOrder {
        /// The peer's address.
        peer: String,
        /// The correlation id that was due.
        expected: i32,
        /// The one that came.
        got: i32,
    },
    /// The cluster has no broker of that id, as far as it says.
    #[error("The cluster at {cluster} has no broker {node_id}.")]
    UnknownBroker {
        /// The bootstrap list.
        cluster: String,
        /// Who was asked for.
        node_id: i32,
    },
}

impl Error {
    /// The sentence without its full stop, to stand inside another one.
    pub(crate) fn clause(&self) -> String {
        self.to_string().trim_end_matches('.').to_owned()
    }

    /// True if the request was certainly not carried out, so that it may be sent again.
    pub fn was_not_sent(&self) -> bool {
        matches!(
            self,
            Error::Unreachable { .. } | Error::Unsupported { .. } | Error::UnknownBroker { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_inside_a_sentence_brings_no_full_stop() {
        let inner = Error::Io(io::Error::from(io::ErrorKind::ConnectionReset));
        let outer = Error::Disconnected { peer: "a:1".to_owned(), reason: inner.clause() };
        let text = outer.to_string();
        assert!(text.ends_with('.') && !text.contains(".."), "{text}");
    }
}
