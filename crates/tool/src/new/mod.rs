//! `new`: writes the files of a provisioner of one's own.

mod files;
mod template;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use flex_core::object::is_dns_name;

pub(super) use self::files::Language;
use self::files::{File, OPERATIONS, files};
use crate::name::name;
use crate::out::say;

/// The longest name. Names of objects are derived from it.
const LONGEST: usize = 40;

#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// The name of the class and of the image, and the directory that is made.
    #[arg(value_parser = class_name)]
    name: String,
    /// The language of the program.
    #[arg(long = "from", value_enum, default_value = "shell")]
    language: Language,
    /// The operations beside provision and delete that the program has, comma-separated.
    #[arg(long, value_name = "OPERATION", value_delimiter = ',', value_parser = PossibleValuesParser::new(OPERATIONS))]
    operations: Vec<String>,
}

fn class_name(text: &str) -> Result<String, String> {
    let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
    match begins && text.len() <= LONGEST && !text.contains('.') && is_dns_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("write lower-case letters, digits and `-`, a letter first, at most {LONGEST}")),
    }
}

pub(super) fn new(args: NewArgs) -> anyhow::Result<ExitCode> {
    let NewArgs { name: class, language, operations } = args;
    let folder = PathBuf::from(&class);
    match fs::create_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{class} exists already, and is left as it is: choose another name, or remove it")
        }
        made => made.with_context(|| format!("the directory {class} cannot be made"))?,
    }
    for file in files(&class, language, &operations) {
        write(&folder, &file).with_context(|| format!("{class}/{} cannot be written", file.path))?;
    }
    say!("1. Write your storage into {class}/{}, and your parameters into {class}/config.yaml.", language.source());
    say!(
        "2. Prove it on this machine: {class}/test.sh; one run alone: {} try --config {class}/config.yaml PROGRAM",
        name()
    );
    say!(
        "3. Build and push the image of {class}/Dockerfile, then: kubectl apply -f {class}/config.yaml -f {class}/storageclass.yaml -f {class}/claim.yaml"
    );
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path, file: &File) -> std::io::Result<()> {
    let path = folder.join(file.path);
    fs::create_dir_all(path.parent().unwrap_or(folder))?;
    fs::write(&path, &file.text)?;
    match file.executable {
        true => fs::set_permissions(&path, fs::Permissions::from_mode(0o755)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_all_objects() {
        for good in ["mine", "my-array-2"] {
            assert_eq!(class_name(good).as_deref(), Ok(good));
        }
        for wrong in ["", "2fast", "Mine", "a.b", "../x", "a/b", "a b", "-a", "a-", &"a".repeat(LONGEST + 1)] {
            assert!(class_name(wrong).is_err(), "{wrong}");
        }
    }
}
