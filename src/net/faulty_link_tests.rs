//! Tests of faults on purpose, over a link that only counts.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::connection::tests::{echo, request};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Counting {
    calls: AtomicUsize,
    slow: Option<Duration>,
}

impl PeerLink for Counting {
    fn call(&self, _: Request, _: Duration) -> BoxFuture<'_, Result<Response, LinkError>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::SeqCst);
            if let Some(slow) = self.slow {
                sleep(slow).await;
            }
            Ok(echo("").into())
        })
    }
}

fn faulty(slow: Option<Duration>) -> (Arc<Counting>, Faults, FaultyLink) {
    let counting = Arc::new(Counting { slow, ..Counting::default() });
    let faults = Faults::new(11);
    let link = FaultyLink::new(counting.clone(), faults.clone());
    (counting, faults, link)
}

#[tokio::test(start_paused = true)]
async fn a_cut_fails_calls_and_a_mend_lets_them_through() {
    let (counting, faults, link) = faulty(Some(SECOND));
    let call = link.call(request(), 5 * SECOND);
    let cut = async {
        sleep(Duration::from_millis(10)).await;
        faults.cut();
    };
    let (answer, ()) = tokio::join!(call, cut);
    assert!(matches!(answer, Err(LinkError::Lost { .. })));
    let refused = link.call(request(), SECOND).await.unwrap_err();
    assert!(refused.was_not_sent());
    assert_eq!(counting.calls.load(Ordering::SeqCst), 1);
    faults.mend();
    assert!(link.call(request(), 5 * SECOND).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn delays_lie_between_their_bounds() {
    let (_, faults, link) = faulty(None);
    faults.delay(Duration::from_millis(20), Duration::from_millis(40));
    for _ in 0..20 {
        let began = Instant::now();
        link.call(request(), SECOND).await.unwrap();
        let took = began.elapsed().as_millis();
        assert!((20..=41).contains(&took), "{took} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_calls_time_out_whether_or_not_they_were_delivered() {
    let (counting, faults, link) = faulty(None);
    faults.drop_share(1.0);
    for _ in 0..40 {
        let error = link.call(request(), SECOND).await.unwrap_err();
        assert!(matches!(error, LinkError::TimedOut { .. }));
    }
    let delivered = counting.calls.load(Ordering::SeqCst);
    assert!((5..=35).contains(&delivered), "{delivered}");
}

#[tokio::test(start_paused = true)]
async fn duplicates_arrive_twice() {
    let (counting, faults, link) = faulty(None);
    faults.duplicate_share(1.0);
    link.call(request(), SECOND).await.unwrap();
    assert_eq!(counting.calls.load(Ordering::SeqCst), 2);
    faults.clear();
    link.call(request(), SECOND).await.unwrap();
    assert_eq!(counting.calls.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_sequence_of_faults() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (_, faults, link) = faulty(None);
        faults.drop_share(0.3);
        faults.delay(Duration::ZERO, Duration::from_millis(9));
        let mut seen = Vec::new();
        for _ in 0..50 {
            let began = Instant::now();
            let lost = link.call(request(), SECOND).await.is_err();
            seen.push((lost, began.elapsed()));
        }
        runs.push(seen);
    }
    assert_eq!(runs[0], runs[1]);
}
