//! TLS before a server, with an authority that no system trusts.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::exchange::{forward, receive};
use crate::process::free_port;

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Makes an authority.
    ///
    /// # Panics
    /// If there is no randomness for its key.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Returns its certificate, as `ca-file` has it.
    pub fn pem(&self) -> String {
        self.0.pem()
    }
}

/// A TLS server that passes all data on to a server without TLS.
pub struct Tls {
    port: u16,
    ended: Arc<AtomicBool>,
}

impl Tls {
    /// Starts it before a port of this machine, with a certificate for a host.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn start(authority: &Authority, host: &str, upstream: u16) -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &authority.0).expect("a certificate");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider's own")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("key and certificate belong together");
        let (config, port) = (Arc::new(config), free_port());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a free port");
        let ended = Arc::new(AtomicBool::new(false));
        let stopped = ended.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let config = config.clone();
                std::thread::spawn(move || serve(config, stream, upstream));
            }
        });
        Self { port, ended }
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread, which then checks the flag.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// Serves one exchange. A client that does not trust the certificate ends it before.
fn serve(config: Arc<ServerConfig>, stream: TcpStream, upstream: u16) -> Option<()> {
    let mut stream = StreamOwned::new(ServerConnection::new(config).ok()?, stream);
    let request = receive(&mut stream)?;
    stream.write_all(&forward(upstream, &request)?).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()?;
    // Closing it with unread data would reset the connection, and the answer would be lost.
    let _ = stream.sock.shutdown(std::net::Shutdown::Write);
    let _ = stream.sock.read(&mut [0; 64]);
    Some(())
}
