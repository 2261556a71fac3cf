//! Checks that the generated code agrees with csi.proto. To generate it: `FLEX_GENERATE=1 cargo test -p csi-spec`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use sha2::{Digest, Sha256};

/// The module and version of the code, and the hash of its file.
const MODULE: &str = "github.com/container-storage-interface/spec@v1.12.0";
const SHA256: &str = "5b81236a3809f3ff0b877ff9b82215d0b74a8e291d7f3ec6ee1a44f537c0f86a";

/// Downloads the module with Go, which checks it against its public log of hashes. Returns the path.
fn proto() -> PathBuf {
    let elsewhere = tempfile::tempdir().unwrap();
    let path = format!("{}:/usr/local/go/bin", env::var("PATH").unwrap_or_default());
    let output = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        .current_dir(elsewhere.path())
        .env("PATH", path)
        .env("GOFLAGS", "-mod=mod")
        .output()
        .expect("Go is installed, as for the cluster of the tests");
    let module: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let directory = module.get("Dir").and_then(serde_json::Value::as_str);
    Path::new(directory.unwrap_or_else(|| panic!("no {MODULE}: {module:?}"))).join("csi.proto")
}

/// The only file, by the name by which it is imported.
struct One(String);

impl FileResolver for One {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "csi.proto" => File::from_source(name, &self.0),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

#[test]
fn the_generated_code_agrees_with_the_specification() {
    let source = fs::read_to_string(proto()).unwrap();
    let hash: String = Sha256::digest(&source).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hash, SHA256, "the code is from another csi.proto");

    let mut resolver = ChainFileResolver::new();
    resolver.add(One(source));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("csi.proto").unwrap();

    let made = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(made.path())
        .btree_map(".")
        .build_transport(false)
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .compile_fds(compiler.file_descriptor_set())
        .unwrap();
    let now = fs::read_to_string(made.path().join("csi.v1.rs")).unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/csi.v1.rs");
    if env::var_os("FLEX_GENERATE").is_some() {
        fs::write(&kept, &now).unwrap();
    }
    let then = fs::read_to_string(&kept).unwrap_or_default();
    assert!(now == then, "src/csi.v1.rs is not what {MODULE} makes; see the first line of this file");
}
