//! Tests of the asking side: order, pipelining, deadlines, versions, endings.

use std::time::Duration;

use bytes::BytesMut;
use protocol::Reader;
use protocol::api::RequestHeader;
use protocol::frame::response_frame;
use protocol::messages::api_versions_response::ApiVersion;
use protocol::messages::{DescribeClusterRequest, DescribeClusterResponse, MetadataRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The answering side of a test: reads requests, writes what it is told.
pub(crate) struct Peer<S> {
    stream: S,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) fn new(stream: S) -> Peer<S> {
        Peer { stream }
    }

    pub(crate) async fn read(&mut self) -> Option<(RequestHeader, Request)> {
        let length = self.stream.read_i32().await.ok()?;
        let mut frame = BytesMut::zeroed(usize::try_from(length).unwrap());
        self.stream.read_exact(&mut frame).await.ok()?;
        let mut input = Reader::new(frame.freeze());
        let header = RequestHeader::decode(&mut input).unwrap();
        let key = ApiKey::from_i16(header.api_key).unwrap();
        let request = Request::decode(key, header.api_version, &mut input).unwrap();
        Some((header, request))
    }

    pub(crate) async fn answer(&mut self, header: &RequestHeader, response: impl Into<Response>) {
        let frame =
            response_frame(&response.into(), header.api_version, header.correlation_id).unwrap();
        self.stream.write_all(&frame).await.unwrap();
    }

    pub(crate) async fn shake_hands(&mut self, served: &[(ApiKey, i16, i16)]) {
        let (header, request) = self.read().await.unwrap();
        assert!(matches!(request, Request::ApiVersions(_)));
        self.answer(&header, versions(served)).await;
    }
}

pub(crate) fn versions(served: &[(ApiKey, i16, i16)]) -> ApiVersionsResponse {
    let api_keys = served
        .iter()
        .map(|(key, min_version, max_version)| ApiVersion {
            api_key: key.as_i16(),
            min_version: *min_version,
            max_version: *max_version,
        })
        .collect();
    ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() }
}

pub(crate) fn echo(name: &str) -> DescribeClusterResponse {
    DescribeClusterResponse { cluster_id: name.to_owned(), ..DescribeClusterResponse::default() }
}

pub(crate) fn request() -> Request {
    Request::DescribeCluster(DescribeClusterRequest::default())
}

pub(crate) fn name_of(response: Response) -> String {
    DescribeClusterResponse::try_from(response).unwrap().cluster_id
}

const SERVED: &[(ApiKey, i16, i16)] =
    &[(ApiKey::ApiVersions, 0, 4), (ApiKey::DescribeCluster, 0, 1)];

async fn connected(options: ConnectionOptions) -> (Connection, Peer<DuplexStream>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let mut peer = Peer::new(far);
    let open = Connection::open(near, "peer:1", &options);
    let (connection, ()) = tokio::join!(open, peer.shake_hands(SERVED));
    (connection.unwrap(), peer)
}

#[tokio::test]
async fn requests_are_pipelined_and_answered_in_order() {
    let (connection, mut peer) = connected(ConnectionOptions::default()).await;
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let connection = connection.clone();
            tokio::spawn(async move {
                let client_id = n.to_string();
                let answer = connection.call_as(&client_id, &request(), SECOND).await.unwrap();
                (client_id, name_of(answer))
            })
        })
        .collect();
    // All requests arrive before the first answer leaves.
    let mut headers = Vec::new();
    for _ in 0..20 {
        headers.push(peer.read().await.unwrap().0);
    }
    for header in &headers {
        peer.answer(header, echo(header.client_id.as_deref().unwrap())).await;
    }
    for call in calls {
        let (asked, got) = call.await.unwrap();
        assert_eq!(asked, got);
    }
}

#[tokio::test]
async fn no_more_requests_than_allowed_are_in_flight() {
    let options = ConnectionOptions { in_flight_max: 2, ..ConnectionOptions::default() };
    let (connection, mut peer) = connected(options).await;
    for _ in 0..3 {
        let connection = connection.clone();
        tokio::spawn(async move { connection.call(&request(), SECOND).await.map(drop) });
    }
    let first = peer.read().await.unwrap().0;
    peer.read().await.unwrap();
    let moment = Duration::from_millis(20);
    assert!(tokio::time::timeout(moment, peer.read()).await.is_err());
    peer.answer(&first, echo("")).await;
    assert!(peer.read().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_dropped_and_the_order_kept() {
    let (connection, mut peer) = connected(ConnectionOptions::default()).await;
    let late = connection.call(&request(), Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(late, Error::TimedOut { .. }), "{late:?}");
    let (first, _) = peer.read().await.unwrap();
    let again = request();
    let second = connection.call(&again, SECOND);
    let answers = async {
        peer.answer(&first, echo("late")).await;
        let (header, _) = peer.read().await.unwrap();
        peer.answer(&header, echo("in time")).await;
    };
    let (answer, ()) = tokio::join!(second, answers);
    assert_eq!(name_of(answer.unwrap()), "in time");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_hangs_is_disconnected() {
    let options = ConnectionOptions { hang_timeout: SECOND, ..ConnectionOptions::default() };
    let (connection, _peer) = connected(options).await;
    let call = connection.call(&request(), Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(call, Error::TimedOut { .. }), "{call:?}");
    tokio::time::timeout(3 * SECOND, connection.closed()).await.unwrap();
    let next = connection.call(&request(), SECOND).await.unwrap_err();
    assert!(next.to_string().contains("stopped answering"), "{next}");
}

#[tokio::test]
async fn requests_in_flight_fail_when_the_peer_closes() {
    let (connection, mut peer) = connected(ConnectionOptions::default()).await;
    let asking = connection.clone();
    let call = tokio::spawn(async move { asking.call(&request(), SECOND).await });
    peer.read().await.unwrap();
    drop(peer);
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Disconnected { .. }) && !error.was_not_sent(), "{error:?}");
    assert!(connection.is_closed());
}

#[tokio::test]
async fn an_answer_nobody_asked_for_ends_the_connection() {
    let (connection, mut peer) = connected(ConnectionOptions::default()).await;
    let asking = connection.clone();
    let call = tokio::spawn(async move { asking.call(&request(), SECOND).await });
    let (mut header, _) = peer.read().await.unwrap();
    header.correlation_id += 1;
    peer.answer(&header, echo("")).await;
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::OutOfOrder { .. }), "{error:?}");
    connection.closed().await;
}

#[tokio::test]
async fn an_older_peer_is_asked_again_in_its_version() {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let mut peer = Peer::new(far);
    let answering = async {
        let (first, _) = peer.read().await.unwrap();
        let mut refusal = versions(&[(ApiKey::ApiVersions, 0, 2)]);
        refusal.error_code = UNSUPPORTED_VERSION;
        peer.answer(&RequestHeader { api_version: 0, ..first }, refusal).await;
        let (second, _) = peer.read().await.unwrap();
        assert_eq!(second.api_version, 2);
        peer.answer(&second, versions(&[(ApiKey::Metadata, 0, 5)])).await;
    };
    let options = ConnectionOptions::default();
    let (connection, ()) = tokio::join!(Connection::open(near, "old:1", &options), answering);
    let connection = connection.unwrap();
    assert_eq!(connection.version(ApiKey::Metadata), Some(5));
    let refused = connection.call(&request(), SECOND).await.unwrap_err();
    assert!(matches!(refused, Error::Unsupported { key: ApiKey::DescribeCluster, .. }));
}

#[tokio::test]
async fn the_connection_ends_with_its_last_user() {
    let (connection, mut peer) = connected(ConnectionOptions::default()).await;
    drop(connection);
    assert!(peer.read().await.is_none());
}

#[tokio::test]
async fn a_request_is_sent_in_the_highest_common_version() {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let mut peer = Peer::new(far);
    let options = ConnectionOptions::default();
    let shake = peer.shake_hands(&[(ApiKey::Metadata, 4, 9)]);
    let (connection, ()) = tokio::join!(Connection::open(near, "peer:1", &options), shake);
    let connection = connection.unwrap();
    let asking = tokio::spawn(async move {
        connection.call(&Request::Metadata(MetadataRequest::default()), SECOND).await.map(drop)
    });
    let (header, _) = peer.read().await.unwrap();
    assert_eq!((header.api_version, header.client_id.as_deref()), (9, Some("heliograph")));
    drop(peer);
    assert!(asking.await.unwrap().is_err());
}
