//! A connection that comes back: opened when it is needed, again after it was lost, with a pause
//! that grows.
//!
//! Owns the backoff and the one attempt at a time. It never sends a request twice.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::api::{Request, Response};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::connection::{Connection, ConnectionOptions};
use crate::error::Error;
use crate::jitter::Jitter;
use crate::span::rounded;
use crate::stream::Connector;
use crate::tcp_link::AddressBook;

/// The pause between two attempts: doubled from `min` to `max`, spread by a fifth.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// After the first failure.
    pub min: Duration,
    /// After many.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { min: Duration::from_millis(50), max: Duration::from_secs(1) }
    }
}

/// A connection to one address, opened when it is needed.
pub struct Reconnecting {
    connector: Arc<dyn Connector>,
    address: AddressBook,
    options: ConnectionOptions,
    backoff: Backoff,
    current: Mutex<Option<Connection>>,
    attempt: tokio::sync::Mutex<Attempt>,
}

struct Attempt {
    jitter: Jitter,
    failures: u32,
    not_before: Instant,
    opened_at: Option<Instant>,
    reason: String,
}

impl Reconnecting {
    /// To what `address` says at the time of each attempt. `seed` spreads the pauses.
    pub fn new(
        connector: Arc<dyn Connector>,
        address: AddressBook,
        options: ConnectionOptions,
        backoff: Backoff,
        seed: u64,
    ) -> Reconnecting {
        Reconnecting {
            connector,
            address,
            options,
            backoff,
            current: Mutex::new(None),
            attempt: tokio::sync::Mutex::new(Attempt {
                jitter: Jitter::new(seed),
                failures: 0,
                not_before: Instant::now(),
                opened_at: None,
                reason: "no attempt was made".to_owned(),
            }),
        }
    }

    /// Sends a request and waits for its answer, opening the connection if needed, all within
    /// `deadline`. `client_id` overrides the connection's.
    pub async fn call(
        &self,
        client_id: Option<&str>,
        request: &Request,
        deadline: Duration,
    ) -> Result<Response, Error> {
        let until = Instant::now() + deadline;
        let connection = self.connection(deadline).await?;
        let left = until.saturating_duration_since(Instant::now());
        match client_id {
            Some(client_id) => connection.call_as(client_id, request, left).await,
            None => connection.call(request, left).await,
        }
    }

    /// The open connection, or a new one. Waits out the pause if it ends within `deadline`, and
    /// fails at once otherwise.
    pub async fn connection(&self, deadline: Duration) -> Result<Connection, Error> {
        if let Some(open) = self.open_connection() {
            return Ok(open);
        }
        let until = Instant::now() + deadline;
        match timeout_at(until, self.reopen(until)).await {
            Ok(opened) => opened,
            Err(_) => {
                Err(self.unreachable(format!("no connection within {}", rounded(&deadline))))
            }
        }
    }

    /// The connection, if one is open now.
    pub fn open_connection(&self) -> Option<Connection> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|connection| !connection.is_closed()).cloned()
    }

    /// Closes the open connection; the next call opens another.
    pub fn disconnect(&self) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(connection) = current {
            connection.close();
        }
    }

    async fn reopen(&self, until: Instant) -> Result<Connection, Error> {
        let mut attempt = self.attempt.lock().await;
        if let Some(open) = self.open_connection() {
            return Ok(open);
        }
        // A peer that accepts and hangs up at once is as good as one that cannot be reached.
        if let Some(opened_at) = attempt.opened_at.take() {
            if opened_at.elapsed() < self.backoff.max {
                attempt.failed(self.backoff, "the peer hung up at once".to_owned());
            } else {
                attempt.failures = 0;
            }
        }
        if attempt.not_before > until {
            return Err(self.unreachable(attempt.reason.clone()));
        }
        sleep_until(attempt.not_before).await;
        match self.open().await {
            Ok(connection) => {
                attempt.opened_at = Some(Instant::now());
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                *current = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                let reason = if let Error::Unreachable { reason, .. } = &error {
                    reason.clone()
                } else {
                    error.clause()
                };
                attempt.failed(self.backoff, reason);
                Err(error)
            }
        }
    }

    async fn open(&self) -> Result<Connection, Error> {
        let Some(address) = (self.address)() else {
            return Err(self.unreachable("its address is not known".to_owned()));
        };
        let connecting = self.connector.connect(&address);
        let stream = match timeout(self.options.connect_timeout, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.unreachable(error.to_string())),
            Err(_) => {
                let after = rounded(&self.options.connect_timeout);
                return Err(self.unreachable(format!("no connection within {after}")));
            }
        };
        Connection::open(stream, address, &self.options)
            .await
            .map_err(|error| self.unreachable(error.clause()))
    }

    fn unreachable(&self, reason: String) -> Error {
        let peer = (self.address)().unwrap_or_else(|| "The peer".to_owned());
        Error::Unreachable { peer, reason }
    }
}

impl Attempt {
    fn failed(&mut self, backoff: Backoff, reason: String) {
        let doubled = backoff.min.saturating_mul(1 << self.failures.min(16)).min(backoff.max);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Instant::now() + self.jitter.spread(doubled);
        self.reason = reason;
    }
}

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting")
            .field("address", &(self.address)())
            .field("open", &self.open_connection().is_some())
            .finish_non_exhaustive()
    }
}
