//! Sockets that a service manager has opened for us (sd_listen_fds(3)). They stay open while andante restarts: who
//! connects meanwhile waits instead of being refused.

use std::{env, io, net::TcpListener};

use listenfd::ListenFd;
use rustix::net::sockopt;

/// Listening sockets that were there before we started.
#[derive(Debug, Default)]
pub struct Given {
    /// Where workers connect; in the place of all configured addresses, if there is any.
    pub workers: Vec<TcpListener>,
    /// For the admin pages, in the place of the configured address: the one that is called `admin`
    /// (`FileDescriptorName=`).
    pub admin: Option<TcpListener>,
}

// === impl Given ===

impl Given {
    /// Takes the sockets of an earlier process, where there are none yet.
    pub fn take_over(&mut self, workers: &mut Vec<TcpListener>, admin: Option<TcpListener>) {
        if self.workers.is_empty() {
            self.workers.append(workers);
        }
        if self.admin.is_none() {
            self.admin = admin;
        }
    }

    /// Takes what the environment (`LISTEN_FDS`, `LISTEN_PID`, `LISTEN_FDNAMES`) says is ours; mostly nothing.
    ///
    /// # Errors
    /// If one of them is not a listening TCP socket, or two are called `admin`.
    pub fn take() -> io::Result<Self> {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = ListenFd::from_env();
        let mut given = Self::default();
        for index in 0..sockets.len() {
            let is_admin = names.next() == Some("admin");
            let Some(listener) = sockets.take_tcp_listener(index)? else { continue };
            if !sockopt::socket_acceptconn(&listener)? {
                return Err(invalid(format!("socket {index} does not listen")));
            }
            // What we wait on with others must not make us wait for itself.
            listener.set_nonblocking(true)?;
            super::probe_silent_clients(&listener)?;
            if !is_admin {
                given.workers.push(listener);
            } else if given.admin.replace(listener).is_some() {
                return Err(invalid("two sockets are called \"admin\"".to_owned()));
            }
        }
        Ok(given)
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
