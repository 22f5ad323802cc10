//! What can go wrong between the actors of a node, and the one place that turns it into a code.

use protocol::error_code::ErrorCode;

/// An error that an actor or a handle reports to its caller.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The actor is gone, restarting, or did not answer before the deadline.
    #[error("{what} did not answer")]
    NoAnswer {
        /// Which actor, in words.
        what: &'static str,
    },
    /// A request is refused with a Kafka code and a sentence.
    #[error("{message}")]
    Refused {
        /// The code the client gets.
        code: ErrorCode,
        /// What happened and what to do.
        message: String,
    },
    /// The partition's log refused the operation.
    #[error(transparent)]
    Log(#[from] std::sync::Arc<log::Error>),
    /// A peer could not be reached.
    #[error("node {node} is unreachable: {why}")]
    Unreachable {
        /// The peer's node id.
        node: i32,
        /// The link's error.
        why: String,
    },
}

impl Error {
    /// A refusal with Kafka's own text for the code.
    pub fn refused(code: ErrorCode) -> Error {
        Error::Refused { code, message: code.message().to_string() }
    }

    /// A refusal with a sentence of ours.
    pub fn refused_with(code: ErrorCode, message: impl Into<String>) -> Error {
        Error::Refused { code, message: message.into() }
    }

    /// The code a client gets.
    pub fn code(&self) -> ErrorCode {
        match self {
            // The successor of a dead partition actor answers soon: clients must retry.
            Error::NoAnswer { .. } => ErrorCode::NotLeaderOrFollower,
            Error::Refused { code, .. } => *code,
            Error::Log(error) => error.error_code(),
            Error::Unreachable { .. } => ErrorCode::CoordinatorNotAvailable,
        }
    }
}

impl From<log::Error> for Error {
    fn from(error: log::Error) -> Error {
        Error::Log(std::sync::Arc::new(error))
    }
}
