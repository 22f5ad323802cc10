//! A link with faults on purpose: cut, slow, losing, repeating.
//!
//! Owns the faults between a node and one peer; one handle can steer many links. It never changes
//! a message. One seed and one order of calls give one sequence of faults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::api::{Request, Response};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::jitter::Jitter;
use crate::peer_link::{BoxFuture, LinkError, PeerLink};

/// The handle on the faults of links. Clones steer the same links.
#[derive(Debug, Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    cut: AtomicBool,
    /// Wakes the calls in flight in their order, which a watch channel would not.
    cut_now: Notify,
    plan: Mutex<Plan>,
}

#[derive(Debug)]
struct Plan {
    delay_min: Duration,
    delay_max: Duration,
    drop_chance: f64,
    duplicate_chance: f64,
    jitter: Jitter,
}

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Delivered,
    Duplicated,
    RequestLost,
    AnswerLost,
}

impl Faults {
    /// No faults yet.
    pub fn new(seed: u64) -> Faults {
        let plan = Plan {
            delay_min: Duration::ZERO,
            delay_max: Duration::ZERO,
            drop_chance: 0.0,
            duplicate_chance: 0.0,
            jitter: Jitter::new(seed),
        };
        let shared =
            Shared { cut: AtomicBool::new(false), cut_now: Notify::new(), plan: Mutex::new(plan) };
        Faults { shared: Arc::new(shared) }
    }

    /// Cuts the links: calls in flight lose their answers, new ones fail at once.
    pub fn cut(&self) {
        self.shared.cut.store(true, Ordering::SeqCst);
        self.shared.cut_now.notify_waiters();
    }

    /// Mends a cut.
    pub fn mend(&self) {
        self.shared.cut.store(false, Ordering::SeqCst);
    }

    /// True while cut.
    pub fn is_cut(&self) -> bool {
        self.shared.cut.load(Ordering::SeqCst)
    }

    /// Delays each request by a time between the two.
    pub fn delay(&self, min: Duration, max: Duration) {
        let mut plan = self.plan();
        plan.delay_min = min;
        plan.delay_max = max.max(min);
    }

    /// Loses this share of the calls: half of them before the peer sees the request, half after.
    pub fn drop_share(&self, chance: f64) {
        self.plan().drop_chance = chance;
    }

    /// Sends this share of the requests twice; the second answer counts.
    pub fn duplicate_share(&self, chance: f64) {
        self.plan().duplicate_chance = chance;
    }

    /// No faults any more.
    pub fn clear(&self) {
        self.delay(Duration::ZERO, Duration::ZERO);
        self.drop_share(0.0);
        self.duplicate_share(0.0);
        self.mend();
    }

    fn draw(&self) -> (Duration, Fate) {
        let mut plan = self.plan();
        let (min, max) = (plan.delay_min, plan.delay_max);
        let delay = if max.is_zero() { max } else { plan.jitter.between(min, max) };
        let (drop_chance, duplicate_chance) = (plan.drop_chance, plan.duplicate_chance);
        let fate = if drop_chance > 0.0 && plan.jitter.chance(drop_chance) {
            if plan.jitter.chance(0.5) { Fate::RequestLost } else { Fate::AnswerLost }
        } else if duplicate_chance > 0.0 && plan.jitter.chance(duplicate_chance) {
            Fate::Duplicated
        } else {
            Fate::Delivered
        };
        (delay, fate)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        // Nothing panics while the plan is held.
        self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A link with the faults its handle asks for.
pub struct FaultyLink {
    inner: Arc<dyn PeerLink>,
    faults: Faults,
}

impl FaultyLink {
    /// Wraps any link.
    pub fn new(inner: Arc<dyn PeerLink>, faults: Faults) -> FaultyLink {
        FaultyLink { inner, faults }
    }

    async fn deliver(&self, request: Request, deadline: Duration) -> Result<Response, LinkError> {
        let until = Instant::now() + deadline;
        let (delay, fate) = self.faults.draw();
        if !delay.is_zero() {
            sleep(delay.min(deadline)).await;
        }
        let left = || until.saturating_duration_since(Instant::now());
        match fate {
            Fate::Delivered => self.inner.call(request, left()).await,
            Fate::Duplicated => {
                let _ = self.inner.call(request.clone(), left()).await;
                self.inner.call(request, left()).await
            }
            Fate::RequestLost => {
                sleep_until(until).await;
                Err(LinkError::TimedOut { after: deadline })
            }
            Fate::AnswerLost => {
                let _ = self.inner.call(request, left()).await;
                sleep_until(until).await;
                Err(LinkError::TimedOut { after: deadline })
            }
        }
    }
}

impl PeerLink for FaultyLink {
    fn call(
        &self,
        request: Request,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Response, LinkError>> {
        Box::pin(async move {
            let cut = self.faults.shared.cut_now.notified();
            tokio::pin!(cut);
            // From here on no cut is missed.
            cut.as_mut().enable();
            if self.faults.is_cut() {
                return Err(LinkError::Unreachable { reason: "the link is cut".to_owned() });
            }
            let until = Instant::now() + deadline;
            tokio::select! {
                biased;
                () = cut => {
                    Err(LinkError::Lost { reason: "the link was cut".to_owned() })
                }
                answer = timeout_at(until, self.deliver(request, deadline)) => {
                    answer.unwrap_or(Err(LinkError::TimedOut { after: deadline }))
                }
            }
        })
    }
}

#[cfg(test)]
#[path = "faulty_link_tests.rs"]
mod tests;
