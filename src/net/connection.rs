//! The asking side of one connection: pipelined requests, answers in order.
//!
//! Owns the handshake, correlation ids, the writer's and the reader's task, and the deadlines. It
//! never reconnects and never sends a request twice.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use protocol::api::{ApiKey, Request, Response};
use protocol::frame::{read_response, request_frame};
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::budget::ByteBudget;
use crate::chunks::write_chunks;
use crate::error::Error;
use crate::framing::FrameReader;
use crate::versions::PeerVersions;

/// Requests the writer takes together into one write.
const WRITE_BATCH: usize = 32;

/// How a connection behaves.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// What the peer is told of the asker, unless a request says otherwise.
    pub client_id: String,
    /// Requests sent and not answered; further ones wait.
    pub in_flight_max: usize,
    /// Bytes of one answer.
    pub frame_bytes_max: usize,
    /// Deadline of opening, the handshake included.
    pub connect_timeout: Duration,
    /// A peer that leaves the oldest request unanswered for this long beyond its deadline is
    /// disconnected.
    pub hang_timeout: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> ConnectionOptions {
        ConnectionOptions {
            client_id: "heliograph".to_owned(),
            in_flight_max: 64,
            frame_bytes_max: 256 * 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            hang_timeout: Duration::from_secs(30),
        }
    }
}

/// A connection to a broker. Clones share it; it closes when the last one is dropped.
#[derive(Clone)]
pub struct Connection {
    asker: Arc<Asker>,
}

struct Asker {
    link: Arc<Link>,
    requests: mpsc::Sender<Outgoing>,
    in_flight: Arc<Semaphore>,
    versions: PeerVersions,
    client_id: String,
    hang_timeout: Duration,
    correlation: AtomicI32,
}

/// What both tasks and all askers share.
struct Link {
    peer: String,
    closed: CancellationToken,
    waiting: Mutex<Waiting>,
}

/// Requests written or being written, in order; after the end, why it ended.
enum Waiting {
    Open(VecDeque<Pending>),
    Closed(String),
}

struct Outgoing {
    frame: Bytes,
    pending: Pending,
}

struct Pending {
    correlation_id: i32,
    key: ApiKey,
    version: i16,
    hangs_at: Instant,
    reply: oneshot::Sender<Result<Response, Error>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Shakes hands over a fresh stream and starts the connection's tasks on the current runtime.
    pub async fn open<S>(
        stream: S,
        peer: impl Into<String>,
        options: &ConnectionOptions,
    ) -> Result<Connection, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let peer = peer.into();
        let (reading, mut writing) = tokio::io::split(stream);
        let mut reader =
            FrameReader::new(reading, options.frame_bytes_max, ByteBudget::unlimited());
        let handshake = shake_hands(&mut reader, &mut writing, &peer, &options.client_id);
        let versions = match tokio::time::timeout(options.connect_timeout, handshake).await {
            Ok(versions) => versions?,
            Err(_) => return Err(Error::TimedOut { peer, after: options.connect_timeout }),
        };
        let (requests, queue) = mpsc::channel(options.in_flight_max.max(1));
        let link = Arc::new(Link {
            peer,
            closed: CancellationToken::new(),
            waiting: Mutex::new(Waiting::Open(VecDeque::new())),
        });
        tokio::spawn(write_requests(link.clone(), writing, queue));
        tokio::spawn(read_answers(link.clone(), reader, options.hang_timeout));
        Ok(Connection {
            asker: Arc::new(Asker {
                link,
                requests,
                in_flight: Arc::new(Semaphore::new(options.in_flight_max.max(1))),
                versions,
                client_id: options.client_id.clone(),
                hang_timeout: options.hang_timeout,
                correlation: AtomicI32::new(1),
            }),
        })
    }

    /// Sends a request and waits for its answer, both within `deadline`. When it fails after the
    /// request was sent, the peer may have carried it out.
    pub async fn call(&self, request: &Request, deadline: Duration) -> Result<Response, Error> {
        self.call_as(&self.asker.client_id, request, deadline).await
    }

    /// As [`Connection::call`], under another client id.
    pub async fn call_as(
        &self,
        client_id: &str,
        request: &Request,
        deadline: Duration,
    ) -> Result<Response, Error> {
        let until = Instant::now() + deadline;
        let asked = self.ask(client_id, request, until);
        match timeout_at(until, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::TimedOut { peer: self.peer().to_owned(), after: deadline }),
        }
    }

    /// The version a request to this peer is sent in.
    pub fn version(&self, key: ApiKey) -> Option<i16> {
        self.asker.versions.pick(key)
    }

    /// What the peer serves.
    pub fn versions(&self) -> &PeerVersions {
        &self.asker.versions
    }

    /// The peer's address as it was given.
    pub fn peer(&self) -> &str {
        &self.asker.link.peer
    }

    /// True once the connection cannot be used any more.
    pub fn is_closed(&self) -> bool {
        self.asker.link.closed.is_cancelled()
    }

    /// Waits for the end of the connection.
    pub async fn closed(&self) {
        self.asker.link.closed.cancelled().await;
    }

    /// Ends the connection; requests in flight fail.
    pub fn close(&self) {
        self.asker.link.close("it was closed here");
    }

    async fn ask(
        &self,
        client_id: &str,
        request: &Request,
        until: Instant,
    ) -> Result<Response, Error> {
        let asker = &*self.asker;
        let key = request.api_key();
        let version = self
            .version(key)
            .ok_or_else(|| Error::Unsupported { peer: self.peer().to_owned(), key })?;
        let permit = asker.in_flight.clone().acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let correlation_id = asker.correlation.fetch_add(1, Ordering::Relaxed);
        let frame = request_frame(request, version, correlation_id, Some(client_id))
            .map_err(|source| Error::Protocol { peer: self.peer().to_owned(), source })?;
        let (reply, answer) = oneshot::channel();
        let hangs_at = until + asker.hang_timeout;
        let pending = Pending { correlation_id, key, version, hangs_at, reply, _permit: permit };
        if asker.requests.send(Outgoing { frame, pending }).await.is_err() {
            return Err(asker.link.disconnected());
        }
        answer.await.unwrap_or_else(|_| Err(asker.link.disconnected()))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.asker.link.peer)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Lines up for an answer, in the order of the writes.
    fn expect(&self, pending: Pending) {
        let mut waiting = self.waiting();
        match &mut *waiting {
            Waiting::Open(queue) => queue.push_back(pending),
            Waiting::Closed(_) => {
                drop(waiting);
                let _ = pending.reply.send(Err(self.disconnected()));
            }
        }
    }

    fn next_pending(&self) -> Option<Pending> {
        match &mut *self.waiting() {
            Waiting::Open(queue) => queue.pop_front(),
            Waiting::Closed(_) => None,
        }
    }

    fn oldest_hangs_at(&self) -> Option<Instant> {
        match &*self.waiting() {
            Waiting::Open(queue) => queue.front().map(|pending| pending.hangs_at),
            Waiting::Closed(_) => None,
        }
    }

    fn close(&self, reason: impl Into<String>) {
        let queue = {
            let mut waiting = self.waiting();
            match &mut *waiting {
                Waiting::Open(queue) => {
                    let queue = std::mem::take(queue);
                    *waiting = Waiting::Closed(reason.into());
                    queue
                }
                Waiting::Closed(_) => VecDeque::new(),
            }
        };
        self.closed.cancel();
        for pending in queue {
            let _ = pending.reply.send(Err(self.disconnected()));
        }
    }

    fn disconnected(&self) -> Error {
        let reason = match &*self.waiting() {
            Waiting::Open(_) => "it is closing".to_owned(),
            Waiting::Closed(reason) => reason.clone(),
        };
        Error::Disconnected { peer: self.peer.clone(), reason }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while the queue is held, and a queue is whole between any two calls.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn shake_hands<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut FrameReader<R>,
    writing: &mut W,
    peer: &str,
    client_id: &str,
) -> Result<PeerVersions, Error> {
    let request = Request::ApiVersions(ApiVersionsRequest {
        client_software_name: "heliograph".to_owned(),
        client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..ApiVersionsRequest::default()
    });
    let invalid = |source| Error::Protocol { peer: peer.to_owned(), source };
    let mut version = *ApiKey::ApiVersions.versions().end();
    loop {
        let frame = request_frame(&request, version, 0, Some(client_id)).map_err(invalid)?;
        write_chunks(writing, &mut vec![frame]).await.map_err(Error::Io)?;
        let frame = reader.next().await?.ok_or_else(|| Error::Disconnected {
            peer: peer.to_owned(),
            reason: "the peer closed it during the handshake".to_owned(),
        })?;
        // A peer that does not know the version answers in version 0 with what it does know.
        let refused = frame.bytes.get(4..6) == Some(&UNSUPPORTED_VERSION.to_be_bytes());
        let answered = if refused { 0 } else { version };
        let (_, response) =
            read_response(frame.bytes, ApiKey::ApiVersions, answered).map_err(invalid)?;
        let response = ApiVersionsResponse::try_from(response).map_err(invalid)?;
        let versions = PeerVersions::from_response(&response);
        if !refused {
            return Ok(versions);
        }
        let lower = versions.pick(ApiKey::ApiVersions).unwrap_or(0);
        if lower >= version {
            return Err(Error::Unsupported { peer: peer.to_owned(), key: ApiKey::ApiVersions });
        }
        version = lower;
    }
}

/// Kafka's code for a version the peer does not serve.
const UNSUPPORTED_VERSION: i16 = 35;

async fn write_requests<W: AsyncWrite + Unpin>(
    link: Arc<Link>,
    mut writing: W,
    mut queue: mpsc::Receiver<Outgoing>,
) {
    let mut batch = Vec::with_capacity(WRITE_BATCH);
    let mut chunks = Vec::with_capacity(WRITE_BATCH);
    let closed = link.closed.clone();
    let writes = async {
        while queue.recv_many(&mut batch, WRITE_BATCH).await > 0 {
            for Outgoing { frame, pending } in batch.drain(..) {
                // Nobody waits for it any more and it was not sent: leave it out.
                if pending.reply.is_closed() {
                    continue;
                }
                link.expect(pending);
                chunks.push(frame);
            }
            if let Err(error) = write_chunks(&mut writing, &mut chunks).await {
                return format!("writing failed ({error})");
            }
        }
        "nobody uses it any more".to_owned()
    };
    if let Some(reason) = closed.run_until_cancelled(writes).await {
        link.close(reason);
    }
}

async fn read_answers<R: AsyncRead + Unpin>(
    link: Arc<Link>,
    mut reader: FrameReader<R>,
    hang_timeout: Duration,
) {
    let closed = link.closed.clone();
    let reads = async {
        loop {
            let frame = tokio::select! {
                frame = reader.next() => frame,
                () = hang(&link, hang_timeout) => {
                    return "the peer stopped answering".to_owned();
                }
            };
            let frame = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => return "the peer closed it".to_owned(),
                Err(error) => return error.clause(),
            };
            if let Err(error) = deliver(&link, frame.bytes) {
                return error.clause();
            }
        }
    };
    if let Some(reason) = closed.run_until_cancelled(reads).await {
        link.close(reason);
    }
}

/// Gives an answer to the one who waits for it; an answer nobody can have asked for is an error.
fn deliver(link: &Link, frame: Bytes) -> Result<(), Error> {
    let got = frame.first_chunk::<4>().map_or(0, |bytes| i32::from_be_bytes(*bytes));
    let Some(pending) = link.next_pending() else {
        return Err(Error::OutOfOrder { peer: link.peer.clone(), expected: 0, got });
    };
    let Pending { correlation_id, key, version, reply, .. } = pending;
    if got != correlation_id {
        let error =
            || Error::OutOfOrder { peer: link.peer.clone(), expected: correlation_id, got };
        let _ = reply.send(Err(error()));
        return Err(error());
    }
    let answer = read_response(frame, key, version)
        .map(|(_, response)| response)
        .map_err(|source| Error::Protocol { peer: link.peer.clone(), source });
    // The asker may have given up; its answer is dropped, the order is kept.
    let _ = reply.send(answer);
    Ok(())
}

/// Ends when the oldest request has been left unanswered for too long.
async fn hang(link: &Link, hang_timeout: Duration) {
    let look = (hang_timeout / 4).clamp(Duration::from_millis(10), Duration::from_secs(5));
    loop {
        sleep(look).await;
        if link.oldest_hangs_at().is_some_and(|at| at <= Instant::now()) {
            return;
        }
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
pub(crate) mod tests;
