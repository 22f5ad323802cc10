//! How nodes of one cluster talk: a request, a deadline, an answer.
//!
//! Owns the trait and its errors. It never says which way the bytes go; between nodes of one
//! process there are none.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use protocol::api::{ApiKey, Request, Response};

use crate::error::Error;
use crate::span::rounded;

/// A future of any kind.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to one peer.
pub trait PeerLink: Send + Sync {
    /// Asks the peer and waits for its answer at most for `deadline`.
    fn call(
        &self,
        request: Request,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Response, LinkError>>;
}

/// Why a peer did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It cannot be reached; the request was not carried out.
    #[error("The peer cannot be reached: {reason}.")]
    Unreachable {
        /// Why.
        reason: String,
    },
    /// No answer in time; the request may have been carried out.
    #[error("The peer did not answer within {}.", rounded(.after))]
    TimedOut {
        /// The deadline.
        after: Duration,
    },
    /// The link was lost before the answer; the request may have been carried out.
    #[error("The link to the peer was lost: {reason}.")]
    Lost {
        /// Why.
        reason: String,
    },
    /// The peer does not serve this request.
    #[error("The peer does not serve {key:?}.")]
    Unsupported {
        /// The API.
        key: ApiKey,
    },
    /// The request or the answer is no valid message.
    #[error("A message is not valid: {reason}.")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
}

impl LinkError {
    /// True if the request was certainly not carried out.
    pub fn was_not_sent(&self) -> bool {
        matches!(self, LinkError::Unreachable { .. } | LinkError::Unsupported { .. })
    }
}

impl From<Error> for LinkError {
    fn from(error: Error) -> LinkError {
        let reason = || error.clause();
        match &error {
            Error::Unreachable { .. }
            | Error::UnknownBroker { .. }
            | Error::PortInUse { .. }
            | Error::Bind { .. } => LinkError::Unreachable { reason: reason() },
            Error::TimedOut { after, .. } => LinkError::TimedOut { after: *after },
            Error::Disconnected { .. }
            | Error::Io(_)
            | Error::Frame(_)
            | Error::ClosedInsideFrame { .. }
            | Error::Stalled { .. }
            | Error::OutOfOrder { .. } => LinkError::Lost { reason: reason() },
            Error::Unsupported { key, .. } => LinkError::Unsupported { key: *key },
            Error::Protocol { .. } => LinkError::Invalid { reason: reason() },
        }
    }
}
