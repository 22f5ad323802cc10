//! Tests of the client and the TCP link over real sockets: discovery, reconnecting, addresses.

use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::api::ApiKey;
use protocol::messages::metadata_response::MetadataResponseBroker;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::connection::tests::{Peer, echo, name_of, request};
use crate::peer_link::{LinkError, PeerLink};
use crate::tcp_link::{TcpLink, TcpLinkOptions};

const SECOND: Duration = Duration::from_secs(1);
const SERVED: &[(ApiKey, i16, i16)] =
    &[(ApiKey::ApiVersions, 0, 4), (ApiKey::Metadata, 0, 12), (ApiKey::DescribeCluster, 0, 1)];

/// A broker that answers DescribeCluster with its name and Metadata with these brokers.
struct Broker {
    port: u16,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn broker(name: &'static str, port: u16, brokers: Vec<(i32, u16)>) -> Broker {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let brokers = brokers.clone();
            connections.spawn(async move {
                let mut peer = Peer::new(stream);
                peer.shake_hands(SERVED).await;
                while let Some((header, request)) = peer.read().await {
                    if let Request::Metadata(_) = request {
                        peer.answer(&header, metadata(&brokers)).await;
                    } else {
                        peer.answer(&header, echo(name)).await;
                    }
                }
            });
        }
    });
    Broker { port, accepted, task }
}

fn metadata(brokers: &[(i32, u16)]) -> MetadataResponse {
    let brokers = brokers
        .iter()
        .map(|(node_id, port)| MetadataResponseBroker {
            node_id: *node_id,
            host: "127.0.0.1".to_owned(),
            port: i32::from(*port),
            ..MetadataResponseBroker::default()
        })
        .collect();
    MetadataResponse {
        brokers,
        cluster_id: Some("cluster".to_owned()),
        controller_id: 1,
        ..MetadataResponse::default()
    }
}

fn client(ports: &[u16]) -> Client {
    let bootstrap = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Client::new(ClientOptions::new(bootstrap, "test", 7))
}

#[tokio::test]
async fn brokers_are_found_through_any_bootstrap_server() {
    let two = broker("two", 0, vec![]).await;
    let one = broker("one", 0, vec![(1, 1), (2, two.port)]).await;
    let dead = broker("dead", 0, vec![]).await.port;
    let client = client(&[dead, one.port]);
    let answer = client.call(2, request(), 2 * SECOND).await.unwrap();
    assert_eq!(name_of(answer), "two");
    let view = client.view();
    assert_eq!(view.cluster_id.as_deref(), Some("cluster"));
    assert_eq!(view.brokers.keys().copied().collect::<Vec<_>>(), [1, 2]);
    let error = client.call(9, request(), 2 * SECOND).await.unwrap_err();
    assert!(matches!(error, Error::UnknownBroker { node_id: 9, .. }), "{error:?}");
}

#[tokio::test]
async fn lanes_are_connections_of_their_own() {
    let two = broker("two", 0, vec![]).await;
    let one = broker("one", 0, vec![(2, two.port)]).await;
    let client = client(&[one.port]);
    for lane in [0, 1, 0, 1, 2] {
        client.call_on(2, lane, None, request(), SECOND).await.unwrap();
    }
    assert_eq!(two.accepted.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_broker_that_comes_back_is_reached_again() {
    let first = broker("before", 0, vec![]).await;
    let port = first.port;
    let one = broker("one", 0, vec![(2, port)]).await;
    let client = client(&[one.port]);
    assert_eq!(name_of(client.call(2, request(), SECOND).await.unwrap()), "before");
    drop(first);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let error = client.call(2, request(), Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. } | Error::Disconnected { .. }), "{error:?}");
    let _second = broker("after", port, vec![]).await;
    let answer = client.call(2, request(), 3 * SECOND).await.unwrap();
    assert_eq!(name_of(answer), "after");
}

#[tokio::test]
async fn a_broker_that_moves_is_followed() {
    let before = broker("before", 0, vec![]).await;
    let after = broker("after", 0, vec![]).await;
    let one = broker("one", 0, vec![(2, after.port)]).await;
    let client = client(&[one.port]);
    client.learn(&metadata(&[(2, before.port)]));
    assert_eq!(name_of(client.call(2, request(), SECOND).await.unwrap()), "before");
    let request_any = MetadataRequest::default();
    // Broker 2 answers it too, with no brokers, which teaches nothing; the bootstrap one knows.
    client.inner.bootstrap[0]
        .call(None, &request_any.into(), SECOND)
        .await
        .map(|response| client.learn_from(&response))
        .unwrap();
    assert_eq!(name_of(client.call(2, request(), SECOND).await.unwrap()), "after");
}

#[tokio::test]
async fn failed_attempts_are_paced() {
    let dead = broker("dead", 0, vec![]).await.port;
    let client = client(&[dead]);
    let began = Instant::now();
    let mut attempts = 0;
    while began.elapsed() < Duration::from_millis(400) {
        let error = client.call_any(request(), Duration::from_millis(100)).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
        attempts += 1;
    }
    assert!(attempts > 4, "{attempts}");
}

#[tokio::test]
async fn a_link_looks_up_the_address_each_time() {
    let first = broker("first", 0, vec![]).await;
    let address = Arc::new(Mutex::new(None));
    let book = address.clone();
    let link = TcpLink::new(
        &(Arc::new(move || book.lock().unwrap().clone()) as crate::AddressBook),
        &TcpLinkOptions::new("node-1", Duration::from_secs(3), 3),
    );
    let unknown = link.call(request(), Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(unknown, LinkError::Unreachable { .. }), "{unknown:?}");
    *address.lock().unwrap() = Some(format!("127.0.0.1:{}", first.port));
    assert_eq!(name_of(link.call(request(), SECOND).await.unwrap()), "first");
    let second = broker("second", 0, vec![]).await;
    *address.lock().unwrap() = Some(format!("127.0.0.1:{}", second.port));
    drop(first);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(name_of(link.call(request(), SECOND).await.unwrap()), "second");
}
