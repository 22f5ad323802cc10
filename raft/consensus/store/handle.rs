//! Who may call a store: a handle that queues for the store's own thread, or runs in place where
//! everything must be deterministic. Owns the order of writes, the grouping of flushes, and the
//! moment the directory may be opened again; never looks into the bytes.
//!
//! Writes are executed in the order they were handed in. Writes that queued up behind one another
//! share one flush. After a failed write or flush nothing is written any more: every later call
//! answers [`Error::Closed`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::super::options::Store;
use super::sled::SledStore;
use super::{Error, MetadataStore, Write};

/// Writes that may wait for one flush.
const GROUP_MAX: usize = 256;

/// Told when a write is durable, or has failed.
pub(crate) type Done = Box<dyn FnOnce(Result<(), Error>) + Send>;

type Task = Box<dyn FnOnce(&mut dyn MetadataStore, &Failure) + Send>;

enum Command {
    /// Write, flush, then tell.
    Write { writes: Vec<Write>, done: Done },
    /// Anything else.
    Run(Task),
}

/// A cheap handle; the store closes when the last one is gone, and at once on [`Abort`].
#[derive(Clone)]
pub(crate) struct StoreHandle {
    access: Arc<Access>,
    abort: Abort,
}

enum Access {
    Thread(mpsc::Sender<Command>),
    InPlace(Mutex<InPlace>),
}

struct InPlace {
    // Fields drop in this order: the guard opens after the store is closed.
    store: Box<dyn MetadataStore>,
    failure: Failure,
    _closed: CloseSignal,
}

/// Why nothing is written any more, once something failed.
#[derive(Default)]
pub(crate) struct Failure(Mutex<Option<String>>);

impl Failure {
    fn check(&self) -> Result<(), Error> {
        match &*self.0.lock() {
            Some(reason) => Err(Error::Closed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn note<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            self.0.lock().get_or_insert_with(|| error.to_string());
        }
        result
    }
}

/// Makes a store forget its queue and close, as a crash would.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abort(Arc<AtomicBool>);

impl Abort {
    /// From now on nothing is executed.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::SeqCst) {
            Err(Error::Closed { reason: String::from("the node crashed") })
        } else {
            Ok(())
        }
    }
}

/// Says when a store is closed, so that its directory may be opened again.
#[derive(Clone, Debug)]
pub struct StoreGuard {
    closed: watch::Receiver<bool>,
}

impl StoreGuard {
    /// Returns when the store is closed: its thread is gone and its lock released. Works on any
    /// runtime, also after the one consensus ran on was shut down.
    pub async fn closed(mut self) {
        // An error means that the sender is gone, which it is only after closing.
        let _ = self.closed.wait_for(|closed| *closed).await;
    }

    /// Whether the store is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow() || self.closed.has_changed().is_err()
    }
}

struct CloseSignal(watch::Sender<bool>);

impl Drop for CloseSignal {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl StoreHandle {
    /// Opens the store; a store on disk gets its thread.
    pub(crate) async fn open(store: &Store) -> Result<(StoreHandle, StoreGuard, Abort), Error> {
        let abort = Abort::default();
        let (closed, receiver) = watch::channel(false);
        let closed = CloseSignal(closed);
        let access = match store {
            Store::Memory(memory) => {
                let store: Box<dyn MetadataStore> = Box::new(memory.open()?);
                let failure = Failure::default();
                Access::InPlace(Mutex::new(InPlace { store, failure, _closed: closed }))
            }
            Store::Sled { dir, sync } => {
                let (commands, queue) = mpsc::channel();
                let (opened, is_open) = oneshot::channel();
                let (dir, sync, thread_abort) = (dir.clone(), *sync, abort.clone());
                let spawned =
                    thread::Builder::new().name(String::from("raft-store")).spawn(move || {
                        match SledStore::open(&dir, sync) {
                            Ok(store) => {
                                let _ = opened.send(Ok(()));
                                serve(store, &queue, &thread_abort);
                                drop(closed);
                            }
                            Err(error) => {
                                drop(closed);
                                let _ = opened.send(Err(error));
                            }
                        }
                    });
                spawned.map_err(|error| thread_lost(&error.to_string()))?;
                is_open.await.map_err(|_| thread_lost("it ended while opening"))??;
                Access::Thread(commands)
            }
        };
        let handle = StoreHandle { access: Arc::new(access), abort: abort.clone() };
        Ok((handle, StoreGuard { closed: receiver }, abort))
    }

    /// Writes in order and calls `done` when the writes are durable. Does not wait on a store with
    /// a thread.
    pub(crate) fn write(&self, writes: Vec<Write>, done: Done) {
        match &*self.access {
            Access::Thread(commands) => {
                if let Err(mpsc::SendError(command)) =
                    commands.send(Command::Write { writes, done })
                {
                    refuse(command, &thread_lost("it is gone"));
                }
            }
            Access::InPlace(in_place) => {
                let mut in_place = in_place.lock();
                let InPlace { store, failure, .. } = &mut *in_place;
                let result = self.abort.check().and_then(|()| {
                    failure.check()?;
                    failure.note(store.write(writes).and_then(|()| store.flush()))
                });
                drop(in_place);
                done(result);
            }
        }
    }

    /// Writes in order and returns when the writes are durable.
    pub(crate) async fn write_durably(&self, writes: Vec<Write>) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        self.write(writes, Box::new(|result| drop(sender.send(result))));
        receiver.await.unwrap_or_else(|_| Err(thread_lost("it is gone")))
    }

    /// Writes in order, durable some time later; a failure shows at the next call.
    pub(crate) fn write_lazily(&self, writes: Vec<Write>) {
        self.run(Box::new(|store, failure| {
            if failure.check().is_ok() {
                let _ = failure.note(store.write(writes));
            }
        }));
    }

    /// Runs `act` on the store, after everything handed in before, and returns what it returns.
    /// For reads, and for changes that must happen together.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut dyn MetadataStore) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        self.run(Box::new(move |store, failure| {
            let result = failure.check().and_then(|()| act(store));
            let _ = sender.send(result);
        }));
        receiver.await.unwrap_or_else(|_| Err(thread_lost("it is gone")))
    }

    /// Whether calls run in place, on the caller's thread.
    pub(crate) fn is_in_place(&self) -> bool {
        matches!(&*self.access, Access::InPlace(_))
    }

    fn run(&self, task: Task) {
        match &*self.access {
            // A lost thread shows by the dropped sender inside the task.
            Access::Thread(commands) => drop(commands.send(Command::Run(task))),
            Access::InPlace(in_place) => {
                if self.abort.check().is_ok() {
                    let mut in_place = in_place.lock();
                    let InPlace { store, failure, .. } = &mut *in_place;
                    task(store.as_mut(), failure);
                }
            }
        }
    }
}

fn thread_lost(reason: &str) -> Error {
    Error::Closed { reason: format!("the store's thread: {reason}") }
}

fn refuse(command: Command, error: &Error) {
    match command {
        Command::Write { writes: _, done } => done(Err(error.clone())),
        Command::Run(_) => {}
    }
}

/// The store's thread: takes what is queued, writes it, flushes once, tells everyone.
fn serve(mut store: SledStore, queue: &mpsc::Receiver<Command>, abort: &Abort) {
    let failure = Failure::default();
    while let Ok(first) = queue.recv() {
        let mut unflushed: Vec<Done> = Vec::new();
        let mut next = Some(first);
        while let Some(command) = next.take() {
            if let Err(error) = abort.check() {
                refuse(command, &error);
                unflushed.drain(..).for_each(|done| done(Err(error.clone())));
                return;
            }
            match command {
                Command::Write { writes, done } => {
                    let written = failure.check().and_then(|()| failure.note(store.write(writes)));
                    match written {
                        Ok(()) => unflushed.push(done),
                        Err(error) => done(Err(error)),
                    }
                }
                Command::Run(task) => task(&mut store, &failure),
            }
            if unflushed.len() < GROUP_MAX {
                next = queue.try_recv().ok();
            }
        }
        if !unflushed.is_empty() {
            let flushed = failure.check().and_then(|()| failure.note(store.flush()));
            unflushed.drain(..).for_each(|done| done(flushed.clone()));
        }
    }
}
