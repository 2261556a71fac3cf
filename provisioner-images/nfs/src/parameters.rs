//! The parameters of the config, checked. All problems are reported at once.

use flex_image_kit::{Failure, nested};

/// The treatment of a volume's directory when the volume is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDelete {
    /// The directory is removed with all its contents.
    Delete,
    /// The directory is renamed to `archived-…` and never touched again.
    Archive,
    /// The directory stays as it is.
    Keep,
}

/// The checked parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The name or address of the server; an IPv6 address without brackets.
    pub server: String,
    /// The absolute path of the export, without a slash at its end; empty for the server's root.
    pub export: String,
    /// The port of the server, where it is not 2049.
    pub port: Option<u16>,
    /// The port of the mount service, for version 3 without a portmapper.
    pub mount_port: Option<u16>,
    /// Protocol versions in the order of preference.
    pub versions: &'static [&'static str],
    /// Whether to use a port below 1024. Exports with the option `secure` require it.
    pub reserved_port: bool,
    /// The pattern of the directory's path within the export.
    pub subdirectory: String,
    /// The owner of the directory.
    pub owner: Option<u32>,
    /// The group of the directory.
    pub group: Option<u32>,
    /// The mode of the directory.
    pub mode: u32,
    /// The treatment of the directory in a delete run.
    pub on_delete: OnDelete,
    /// The user id that the image sends to the server.
    pub client_user: u32,
    /// The group id that the image sends to the server.
    pub client_group: u32,
}

/// The names of all parameters.
pub const NAMES: [&str; 14] = [
    "server",
    "export",
    "exports",
    "port",
    "version",
    "mount-port",
    "reserved-port",
    "client-user",
    "client-group",
    "subdirectory",
    "mode",
    "owner",
    "group",
    "on-delete",
];
/// The default of `subdirectory`.
pub const DEFAULT_PATTERN: &str = "${pvc.namespace}-${pvc.name}-${pv.name}";

impl Parameters {
    /// Reads and checks the parameters, for each export in turn. There is at least one.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Vec<Self>, Failure> {
        let mut problems = Vec::new();
        let text = |name: &str| env(name).unwrap_or_default();
        let places = places(&text("EXPORTS"), &text("SERVER"), &text("EXPORT"), &mut problems);
        let versions = versions(&text("VERSION")).map_err(|problem| problems.push(problem)).unwrap_or_default();
        let mode = mode(&text("MODE")).map_err(|problem| problems.push(problem)).unwrap_or_default();
        let on_delete =
            on_delete(&text("ON_DELETE")).map_err(|problem| problems.push(problem)).unwrap_or(OnDelete::Keep);
        let mut number = |parameter: &str, variable: &str, most: u32| match text(variable) {
            empty if empty.is_empty() => None,
            value => match value.parse::<u32>() {
                Ok(number) if number <= most => Some(number),
                _ => {
                    problems.push(format!("{parameter} is `{value}`: it must be a number from 0 to {most}"));
                    None
                }
            },
        };
        let mut port = |parameter: &str, variable: &str| {
            number(parameter, variable, u32::from(u16::MAX)).and_then(|port| u16::try_from(port).ok())
        };
        let (nfs_port, mount_port) = (port("port", "PORT"), port("mount-port", "MOUNT_PORT"));
        let (owner, group) = (number("owner", "OWNER", u32::MAX - 1), number("group", "GROUP", u32::MAX - 1));
        let client_user = number("client-user", "CLIENT_USER", u32::MAX - 1).unwrap_or(0);
        let client_group = number("client-group", "CLIENT_GROUP", u32::MAX - 1).unwrap_or(0);
        let reserved_port = match text("RESERVED_PORT").as_str() {
            "" | "false" => false,
            "true" => true,
            other => {
                problems.push(format!("reserved-port is `{other}`: it must be true or false"));
                false
            }
        };
        let subdirectory = Some(text("SUBDIRECTORY")).filter(|pattern| !pattern.is_empty());
        if !problems.is_empty() {
            return Err(Failure::config(problems.join("\n")));
        }
        let common = Self {
            server: String::new(),
            export: String::new(),
            port: nfs_port,
            mount_port,
            versions,
            reserved_port,
            subdirectory: subdirectory.unwrap_or_else(|| DEFAULT_PATTERN.to_owned()),
            owner,
            group,
            mode,
            on_delete,
            client_user,
            client_group,
        };
        Ok(places.into_iter().map(|(server, export)| Self { server, export, ..common.clone() }).collect())
    }

    /// Returns the export as people write it.
    pub fn location(&self) -> String {
        let Self { server, export, port, .. } = self;
        let port = port.map(|port| format!(" (port {port})")).unwrap_or_default();
        let server = if server.contains(':') { format!("[{server}]") } else { server.clone() };
        let export = if export.is_empty() { "/" } else { export };
        format!("{server}:{export}{port}")
    }
}

/// Returns server and path of each export.
fn places(list: &str, one_server: &str, one_export: &str, problems: &mut Vec<String>) -> Vec<(String, String)> {
    let mut places: Vec<(String, String)> = Vec::new();
    let mut of = |at_server: &str, path: &str| {
        let (server, export) = (server(at_server), export(path));
        problems.extend([&server, &export].into_iter().filter_map(|it| it.clone().err()));
        places.push((server.unwrap_or_default(), export.unwrap_or_default()));
    };
    if list.trim().is_empty() {
        of(one_server, one_export);
        return places;
    }
    let words: Vec<&str> = list.split_whitespace().collect();
    let mut unread = Vec::new();
    for word in &words {
        match word.split_once(":/") {
            Some((server, _)) => of(server, &word[server.len() + 1..]),
            None => unread.push(format!("exports has `{word}`: an export is SERVER:/PATH")),
        }
    }
    problems.extend(unread);
    if !one_server.is_empty() || !one_export.is_empty() {
        problems.push("exports names all servers: remove server and export from the config".into());
    }
    for (n, (server, export)) in places.iter().enumerate() {
        if places[..n].iter().any(|(at, other)| at == server && nested::overlap(other, export)) {
            problems.push(format!("exports has {server}:{export} twice, or inside another export"));
        }
    }
    places
}

fn server(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_');
    if text.is_empty() {
        return Err("server is missing: the name or address of the NFS server".into());
    }
    // One colon means a port, which has a parameter of its own. Several mean an IPv6 address.
    let ipv6 = bare.parse::<std::net::Ipv6Addr>().is_ok();
    if !bare.chars().all(legal) || (bare.contains(':') && !ipv6) {
        return Err(format!("server is `{text}`: it must be a name or an address alone; a port goes into `port`"));
    }
    Ok(bare.to_owned())
}

fn export(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("export is missing: the path that the NFS server exports, such as /exports/data".into());
    }
    let path = text.trim_end_matches('/');
    let plain = path.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    if !text.starts_with('/') || !plain || text.contains(char::is_control) {
        return Err(format!("export is `{text}`: it must be an absolute path without `.`, `..` and doubled slashes"));
    }
    Ok(path.to_owned())
}

fn versions(text: &str) -> Result<&'static [&'static str], String> {
    match text {
        "" | "4" => Ok(&["4.1", "4.0"]),
        "4.0" => Ok(&["4.0"]),
        "4.1" => Ok(&["4.1"]),
        "4.2" => Ok(&["4.2"]),
        "3" => Ok(&["3"]),
        other => Err(format!("version is `{other}`: it must be 3, 4, 4.0, 4.1 or 4.2")),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    if text.is_empty() {
        return Ok(0o777);
    }
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("mode is `{text}`: it must be octal, such as 0770")),
    }
}

fn on_delete(text: &str) -> Result<OnDelete, String> {
    match text {
        "" | "delete" => Ok(OnDelete::Delete),
        "archive" => Ok(OnDelete::Archive),
        "keep" | "retain" => Ok(OnDelete::Keep),
        other => Err(format!("on-delete is `{other}`: it must be delete, archive or keep")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flex_contract::parameter::env_name;
    use flex_image_kit::parameters::variables_read;

    use super::*;

    fn read_all(pairs: &[(&str, &str)]) -> Result<Vec<Parameters>, Failure> {
        Parameters::from_env(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    fn read(pairs: &[(&str, &str)]) -> Result<Parameters, Failure> {
        read_all(pairs).map(|mut all| all.remove(0))
    }

    #[test]
    fn several_exports_are_read_in_their_order() {
        let all = read_all(&[("EXPORTS", "nas-2:/b\n [fd00::]:/exports/a/ nas-2:/bc"), ("MODE", "0700")]).unwrap();
        let places: Vec<String> = all.iter().map(Parameters::location).collect();
        assert_eq!(places, ["nas-2:/b", "[fd00::]:/exports/a", "nas-2:/bc"]);
        assert!(all.iter().all(|it| it.mode == 0o700));
        for (exports, says) in [
            ("nas", "`nas`: an export is"),
            ("nas:/a nas:/a/", "twice"),
            ("nas:/ nas:/a", "inside another"),
            ("nas:/a/b nas:/a", "inside another"),
            ("nas:/a//b", "export is"),
            ("na s:/a", "`na`"),
            (":/a", "server is missing"),
        ] {
            let failure = read_all(&[("EXPORTS", exports)]).expect_err(exports);
            assert!(failure.code == 78 && failure.message.contains(says), "{exports}: {failure}");
        }
        let both = read_all(&[("EXPORTS", "nas:/a"), ("SERVER", "nas")]).unwrap_err();
        assert!(both.message.contains("remove server and export"), "{both}");
    }

    #[test]
    fn two_parameters_are_enough() {
        let parameters = read(&[("SERVER", "[fd00::1]"), ("EXPORT", "/exports/a/")]).unwrap();
        assert_eq!(parameters.server, "fd00::1");
        assert_eq!(parameters.export, "/exports/a");
        assert_eq!((parameters.mode, parameters.on_delete), (0o777, OnDelete::Delete));
        assert_eq!(parameters.subdirectory, DEFAULT_PATTERN);
        assert_eq!(read(&[("SERVER", "nas"), ("EXPORT", "/")]).unwrap().export, "");
    }

    #[test]
    fn each_wrong_value_is_a_config_error() {
        for (name, value, says) in [
            ("SERVER", "", "server is missing"),
            ("SERVER", "nas/x", "server is"),
            ("SERVER", "nas:2049", "goes into `port`"),
            ("SERVER", "nas?version=3", "server is"),
            ("EXPORT", "", "export is missing"),
            ("EXPORT", "a", "absolute"),
            ("EXPORT", "/a/../b", "export is"),
            ("EXPORT", "/a//b", "export is"),
            ("PORT", "70000", "port is"),
            ("MOUNT_PORT", "x", "mount-port is"),
            ("OWNER", "-1", "owner is"),
            ("GROUP", "4294967295", "group is"),
            ("MODE", "0888", "mode is"),
            ("MODE", "17777", "mode is"),
            ("VERSION", "2", "version is"),
            ("ON_DELETE", "shred", "on-delete is"),
            ("RESERVED_PORT", "yes", "reserved-port is"),
            ("CLIENT_USER", "root", "client-user is"),
        ] {
            let failure = read(&[(name, value), ("SERVER", "nas"), ("EXPORT", "/a")]).expect_err(name);
            assert_eq!(failure.code, 78, "{name}={value}");
            assert!(failure.message.contains(says), "{name}={value}: {failure}");
        }
    }

    #[test]
    fn the_names_are_those_of_the_variables_that_are_read() {
        let read = variables_read(|env| drop(Parameters::from_env(env)));
        assert_eq!(NAMES.iter().map(|name| env_name(name)).collect::<BTreeSet<_>>(), read);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let failure = read(&[("MODE", "9"), ("PORT", "x")]).unwrap_err();
        for says in ["server is missing", "export is missing", "mode is", "port is"] {
            assert!(failure.message.contains(says), "{says}: {failure}");
        }
    }
}
