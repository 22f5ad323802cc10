//! The edge alone, over real sockets: what a listener serves, what closes a connection, and what
//! survives a killed listener and a killed edge.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use protocol::Reader;
use protocol::api::{ApiKey, Response, ResponseHeader};
use protocol::frame::{read_response, request_frame};
use protocol::ids::{DirectoryId, NodeId};
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::clock::Clock;
use crate::connection::context::ListenerKind;
use crate::directory::{DirectoryParts, Identity};
use crate::entropy::Entropy;
use crate::peers::{LinkMode, Peers};
use crate::runtimes::RuntimeHandles;

const WAIT: Duration = Duration::from_secs(5);

fn directory(idle_ms: i64) -> Arc<Directory> {
    let text = format!(
        "node.id=1\nprocess.roles=broker,controller\nlog.dirs=/tmp/none\n\
         listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n\
         controller.listener.names=CONTROLLER\nconnections.max.idle.ms={idle_ms}\n\
         controller.quorum.voters=1@127.0.0.1:9093\n"
    );
    let properties = config::parse_properties(&text).unwrap();
    let settings = config::BrokerConfig::from_settings(properties, config::Profile::Dev).unwrap();
    let (directory, _isr_changes) = Directory::new(DirectoryParts {
        identity: Identity {
            had_logs: false,
            cluster: "edge".to_owned(),
            node_id: NodeId(1),
            directory_id: DirectoryId(uuid::Uuid::from_u128(1)),
        },
        config: Arc::new(settings),
        clock: Clock::System,
        entropy: Entropy::seeded(1),
        runtimes: RuntimeHandles::shared_current(),
        peers: Peers::new(NodeId(1), LinkMode::Local, Duration::from_secs(3), Arc::default()),
    });
    Arc::new(directory)
}

async fn edge(directory: &Arc<Directory>) -> ActorRef<EdgeMsg> {
    let args = EdgeArgs { directory: Arc::clone(directory) };
    Actor::spawn(None, Edge, args).await.unwrap().0
}

fn controller_at(directory: &Directory) -> SocketAddr {
    directory.peers.neighbours().addresses(NodeId(1)).control.unwrap()
}

async fn send_frame(stream: &mut TcpStream, body: &[u8]) {
    let length = u32::try_from(body.len()).unwrap();
    stream.write_all(&length.to_be_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
}

/// The next frame without its length; `None` when the connection was closed.
async fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let read = async {
        let length = stream.read_u32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut frame).await.ok()?;
        Some(frame)
    };
    tokio::time::timeout(WAIT, read).await.expect("an answer or the end in time")
}

async fn api_versions(stream: &mut TcpStream) -> ApiVersionsResponse {
    let request = ApiVersionsRequest {
        client_software_name: "test".to_owned(),
        client_software_version: "1".to_owned(),
        ..ApiVersionsRequest::default()
    };
    let frame = request_frame(&request.into(), 4, 7, Some("test")).unwrap();
    stream.write_all(&frame).await.unwrap();
    let answer = read_frame(stream).await.expect("an answer");
    let (correlation_id, response) = read_answer(answer, ApiKey::ApiVersions, 4);
    assert_eq!(correlation_id, 7);
    response.try_into().unwrap()
}

fn read_answer(frame: Vec<u8>, key: ApiKey, version: i16) -> (i32, Response) {
    let (header, response): (ResponseHeader, Response) =
        read_response(frame.into(), key, version).unwrap();
    (header.correlation_id, response)
}

#[tokio::test]
async fn a_controller_listener_tells_of_its_own_keys_and_of_no_private_one() {
    let directory = directory(60_000);
    let _edge = edge(&directory).await;
    let mut stream = TcpStream::connect(controller_at(&directory)).await.unwrap();
    let answer = api_versions(&mut stream).await;
    assert_eq!(answer.error_code, 0);
    let keys: Vec<i16> = answer.api_keys.iter().map(|key| key.api_key).collect();
    assert_eq!(keys, [18, 56, 62, 63, 67, 105]);
}

#[tokio::test]
async fn clients_are_refused_until_the_broker_is_unfenced() {
    let directory = directory(60_000);
    let _edge = edge(&directory).await;
    let advertised = directory.advertised();
    let refused = TcpStream::connect(("127.0.0.1", advertised[0].port)).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn a_version_to_come_is_answered_and_an_unknown_key_ends_the_connection() {
    let directory = directory(60_000);
    let _edge = edge(&directory).await;
    let mut stream = TcpStream::connect(controller_at(&directory)).await.unwrap();
    // ApiVersions 99 with a flexible header and a body nobody can read.
    send_frame(&mut stream, &[0, 18, 0, 99, 0, 0, 0, 3, 0, 1, b'x', 0, 1, 2, 3]).await;
    let answer = read_frame(&mut stream).await.expect("an answer");
    let (correlation_id, response) = read_answer(answer, ApiKey::ApiVersions, 0);
    let response = ApiVersionsResponse::try_from(response).unwrap();
    assert_eq!((correlation_id, response.error_code), (3, 35));
    assert_eq!(response.api_keys.len(), 1);
    // Metadata is none of the controller listener's keys.
    send_frame(&mut stream, &[0, 3, 0, 1, 0, 0, 0, 4, 0, 1, b'x', 0, 0, 0, 0]).await;
    assert_eq!(read_frame(&mut stream).await, None);
}

#[tokio::test]
async fn a_killed_listener_and_a_killed_edge_end_no_connection() {
    let directory = directory(60_000);
    let first = edge(&directory).await;
    let address = controller_at(&directory);
    let mut stream = TcpStream::connect(address).await.unwrap();
    api_versions(&mut stream).await;
    let listeners = first.get_children();
    assert_eq!(listeners.len(), 2);
    for listener in listeners {
        listener.kill();
    }
    api_versions(&mut stream).await;
    let mut next = TcpStream::connect(address).await.unwrap();
    api_versions(&mut next).await;
    first.get_cell().kill();
    let _successor = edge(&directory).await;
    assert_eq!(controller_at(&directory), address);
    api_versions(&mut stream).await;
    let mut last = TcpStream::connect(address).await.unwrap();
    api_versions(&mut last).await;
}

#[tokio::test]
async fn an_edge_that_is_asked_to_stop_gives_its_ports_back_and_ends_connections() {
    let directory = directory(60_000);
    let edge = edge(&directory).await;
    let address = controller_at(&directory);
    let mut stream = TcpStream::connect(address).await.unwrap();
    api_versions(&mut stream).await;
    edge.stop_and_wait(None, None).await.unwrap();
    assert_eq!(read_frame(&mut stream).await, None);
    net::BoundSocket::bind("127.0.0.1", address.port()).await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let directory = directory(50);
    let _edge = edge(&directory).await;
    let mut stream = TcpStream::connect(controller_at(&directory)).await.unwrap();
    api_versions(&mut stream).await;
    assert_eq!(read_frame(&mut stream).await, None);
}

#[tokio::test]
async fn kafkas_unregister_controller_is_told_that_it_is_not_served() {
    let directory = directory(60_000);
    let (mut client, server) = TcpPair::connected().await;
    let connection = crate::connection::Connection {
        listener: ListenerKind::InterBroker,
        listener_name: Arc::from("PLAINTEXT"),
        peer: server.peer_addr().unwrap(),
        stream: server,
        closed: directory.stopped.child_token(),
        directory,
    };
    tokio::spawn(connection.run());
    // Key 94, version 0, flexible header; controller id 3001 and no tagged fields.
    send_frame(&mut client, &[0, 94, 0, 0, 0, 0, 0, 5, 0, 1, b'x', 0, 0, 0, 0x0b, 0xb9, 0]).await;
    let answer = read_frame(&mut client).await;
    let Some(answer) = answer else {
        assert!(!crate::connection::dispatch::is_served(ApiKey::CreateMirror));
        return;
    };
    let (_, response) = read_answer(answer, ApiKey::CreateMirror, 0);
    let mut body = BytesMut::new();
    response.encode(0, &mut body).unwrap();
    let mut reader = Reader::new(body.freeze());
    let Response::CreateMirror(answer) =
        Response::decode(ApiKey::CreateMirror, 0, &mut reader).unwrap()
    else {
        panic!("an answer in CreateMirror's form")
    };
    assert_eq!(answer.error_code, 35);
}

struct TcpPair;

impl TcpPair {
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (client, server)
    }
}
