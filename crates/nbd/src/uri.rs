//! NBD URIs (`doc/uri.md` of NetworkBlockDevice/nbd).

use std::path::PathBuf;

/// The port of a URI that names none.
const DEFAULT_PORT: u16 = 10809;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// Host and port.
    Tcp(String, u16),
}

/// An export on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// The server.
    pub address: Address,
    /// The export's name; empty for the default.
    pub export: String,
}

impl Uri {
    /// Reads `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`.
    ///
    /// # Errors
    /// Where it is neither; the message says what would be.
    pub fn parse(text: &str) -> Result<Uri, String> {
        let fault = |why: &str| {
            format!(
                "{text:?}: {why}; write nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH"
            )
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| fault("no URI"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let export = decode(path).ok_or_else(|| fault("the export's name is not well encoded"))?;
        let address = match scheme {
            "nbd" => {
                let (host, port) = host_and_port(authority).ok_or_else(|| fault("no such port"))?;
                if host.is_empty() {
                    return Err(fault("no host"));
                }
                Address::Tcp(host, port)
            }
            "nbd+unix" => {
                let socket = query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix("socket="));
                let socket = socket.and_then(decode).ok_or_else(|| fault("no socket"))?;
                Address::Unix(PathBuf::from(socket))
            }
            "nbds" | "nbds+unix" => return Err(fault("TLS is not there")),
            _ => return Err(fault("an unknown scheme")),
        };
        Ok(Uri { address, export })
    }
}

fn host_and_port(authority: &str) -> Option<(String, u16)> {
    // An IPv6 address stands in brackets.
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok()?,
        None => DEFAULT_PORT,
    };
    Some((host.to_string(), port))
}

/// Text with `%XX` for bytes.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_a_server_and_an_export() {
        let unix = |path: &str, export: &str| Uri {
            address: Address::Unix(PathBuf::from(path)),
            export: export.to_string(),
        };
        let tcp = |host: &str, port, export: &str| Uri {
            address: Address::Tcp(host.to_string(), port),
            export: export.to_string(),
        };
        let parse = Uri::parse;
        assert_eq!(
            parse("nbd+unix:///?socket=/a/b.sock"),
            Ok(unix("/a/b.sock", ""))
        );
        assert_eq!(parse("nbd+unix:///x%20y?socket=s"), Ok(unix("s", "x y")));
        assert_eq!(parse("nbd://localhost"), Ok(tcp("localhost", 10809, "")));
        assert_eq!(parse("nbd://[::1]:5/e"), Ok(tcp("::1", 5, "e")));
        for wrong in [
            "",
            "nbd:",
            "http://x",
            "nbd://:1/",
            "nbd+unix:///",
            "nbd://h:x",
            "nbds://h",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("nbd://h/%f").is_err());
    }
}
