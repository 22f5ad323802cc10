//! Points at which a test build dies or holds on order: the process, as if killed, or an actor, as
//! if by a bug. In other builds they are nothing.

/// When the fail point `name` is set to `return`, kills the process; to `return(hold)`, says on
/// standard error that it was reached, and holds the thread for ever.
#[cfg(feature = "failpoints")]
pub fn crash_point(name: &str) {
    fail::fail_point!(name, |order: Option<String>| {
        if order.as_deref() == Some("hold") {
            hold(name);
        }
        let me = rustix::process::getpid();
        if rustix::process::kill_process(me, rustix::process::Signal::KILL).is_err() {
            std::process::abort();
        }
    });
}

/// Kills or holds when the fail point `name` is set: only in builds with fail points.
#[cfg(not(feature = "failpoints"))]
pub fn crash_point(_name: &str) {}

#[cfg(feature = "failpoints")]
fn hold(name: &str) {
    eprintln!("crash point reached: {name}");
    loop {
        std::thread::park();
    }
}

/// Panics when the fail point `name` for `of` is set to `panic`: a bug in one actor of many.
#[cfg(feature = "failpoints")]
pub fn panic_point(name: &str, of: impl std::fmt::Display) {
    fail::fail_point!(&format!("{name}-{of}"));
}

/// Panics when the fail point `name` for `of` is set: only in builds with fail points.
#[cfg(not(feature = "failpoints"))]
pub fn panic_point(_name: &str, _of: impl std::fmt::Display) {}
