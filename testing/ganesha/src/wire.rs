//! The few requests and answers of NFSv4 that the front reads and writes (RFC 5531, 8881 and 7862). The functions are
//! pure, except for the two that read and write messages.

use std::io::{self, Read, Write};

/// The numbers of operations.
/// GETATTR.
pub const GETATTR: u32 = 9;
const PUTFH: u32 = 22;
const SAVEFH: u32 = 32;
const EXCHANGE_ID: u32 = 42;
const SEQUENCE: u32 = 53;
const COPY: u32 = 60;
const CLONE: u32 = 71;
/// The numbers of operations that the front can hold.
pub const CREATE: u32 = 6;
pub const REMOVE: u32 = 28;
pub const RENAME: u32 = 29;
/// The kind of a directory.
pub const DIRECTORY: u32 = 2;
/// NFS4ERR_IO.
pub const IO_ERROR: u32 = 5;
/// The attribute `fileid`, as a bitmap.
const NUMBER_OF_FILE: u32 = 1 << 20;
/// EXCHGID4_FLAG_SUPP_FENCE_OPS.
const FENCING: u8 = 4;
/// The bit of the last part of a message.
const LAST: u32 = 1 << 31;

/// A request to copy a part of a file.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Whether it is CLONE, else COPY.
    pub is_clone: bool,
    /// The place in the source.
    pub from: u64,
    /// The place in the target.
    pub to: u64,
    /// The number of bytes; 0 for all that follow.
    pub count: u64,
}

/// A request with one of the operations.
pub struct Request {
    /// The number of the request.
    pub id: u32,
    /// The operation.
    pub call: Call,
    /// The request that asks for the numbers of both files instead.
    pub instead: Vec<u8>,
}

/// Reads a message, which may have several parts.
pub fn read_message(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        let mut mark = [0; 4];
        from.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let mut part = vec![0; (mark & !LAST) as usize];
        from.read_exact(&mut part)?;
        message.extend(part);
        if mark & LAST != 0 {
            return Ok(message);
        }
    }
}

/// Writes a message.
pub fn write_message(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let mut bytes = (length | LAST).to_be_bytes().to_vec();
    bytes.extend(message);
    to.write_all(&bytes)
}

/// Returns the number of a request or an answer.
pub fn id(message: &[u8]) -> Option<u32> {
    Words(message).word()
}

/// Takes the flag for fencing of NFSv4.2 out of the request for a client id: nfs-ganesha 4.3 refuses the flag. All other
/// messages stay as they are.
pub fn without_fencing(mut message: Vec<u8>) -> Vec<u8> {
    let place = flags_of_client(&message).and_then(|place| message.get_mut(place + 3));
    if let Some(last_byte) = place {
        *last_byte &= !FENCING;
    }
    message
}

/// Returns the place of the flags in a request for a client id.
fn flags_of_client(message: &[u8]) -> Option<usize> {
    let mut words = Words(message);
    compound(&mut words)?;
    words.word()?;
    words.is(1)?;
    words.is(EXCHANGE_ID)?;
    words.long()?;
    words.opaque()?;
    Some(message.len() - words.0.len())
}

/// The rest of a message.
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a word.
    pub fn word(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// Reads bytes that follow their number, filled up to whole words.
    pub fn opaque(&mut self) -> Option<&'a [u8]> {
        let length = self.word()? as usize;
        let bytes = self.bytes(length)?;
        self.bytes(length.next_multiple_of(4) - length)?;
        Some(bytes)
    }

    /// Reads a word that must be this one.
    pub fn is(&mut self, expected: u32) -> Option<()> {
        (self.word()? == expected).then_some(())
    }
}

/// Reads the beginning of a compound of NFSv4, up to its minor version.
fn compound(words: &mut Words<'_>) -> Option<()> {
    words.word()?;
    // A call of version 2 of the protocol, to NFS 4, for a compound.
    for expected in [0, 2, 100_003, 4, 1] {
        words.is(expected)?;
    }
    for _ in 0..2 {
        words.word()?;
        words.opaque()?;
    }
    words.opaque().map(drop)
}

/// Returns the number of the first operation of a request that does more than name a file, and the word after the number.
pub fn operation(request: &[u8]) -> Option<(u32, u32)> {
    let mut words = Words(request);
    compound(&mut words)?;
    words.word()?;
    for _ in 0..words.word()? {
        match words.word()? {
            SEQUENCE => drop(words.bytes(32)?),
            PUTFH => drop(words.opaque()?),
            SAVEFH => {}
            other => return Some((other, words.word()?)),
        }
    }
    None
}

/// Reads a request; `None` for one without the operations.
pub fn request(message: &[u8]) -> Option<Request> {
    let id = id(message)?;
    let mut words = Words(message);
    compound(&mut words)?;
    words.word()?;
    let before = message.len() - words.0.len();
    words.is(5)?;
    words.is(SEQUENCE)?;
    let sequence = words.bytes(32)?;
    words.is(PUTFH)?;
    let source = words.opaque()?;
    words.is(SAVEFH)?;
    words.is(PUTFH)?;
    let target = words.opaque()?;
    let is_clone = match words.word()? {
        CLONE => true,
        COPY => false,
        _ => return None,
    };
    words.bytes(32)?;
    let call = Call { is_clone, from: words.long()?, to: words.long()?, count: words.long()? };
    let mut instead = message[..before].to_vec();
    instead.extend(6_u32.to_be_bytes());
    instead.extend(SEQUENCE.to_be_bytes());
    instead.extend(sequence);
    for (number, handle) in [source, target].into_iter().enumerate() {
        if number == 1 {
            instead.extend(SAVEFH.to_be_bytes());
        }
        instead.extend(PUTFH.to_be_bytes());
        instead.extend(u32::try_from(handle.len()).ok()?.to_be_bytes());
        instead.extend(handle);
        instead.resize(instead.len() + handle.len().next_multiple_of(4) - handle.len(), 0);
        for word in [GETATTR, 1, NUMBER_OF_FILE] {
            instead.extend(word.to_be_bytes());
        }
    }
    Some(Request { id, call, instead })
}

/// Adds a word to a message.
pub fn add_word(message: &mut Vec<u8>, word: u32) {
    message.extend(word.to_be_bytes());
}

/// Adds bytes after their number, filled up to whole words.
pub fn add_opaque(message: &mut Vec<u8>, bytes: &[u8]) {
    add_word(message, u32::try_from(bytes.len()).unwrap_or(0));
    message.extend(bytes);
    message.resize(message.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
}

/// Reads a request for one file: its operation, and the request that asks for the number of the file instead. Returns
/// `None` for a request with another operation than `read` knows.
pub fn of_file<T>(message: &[u8], read: impl Fn(&mut Words<'_>) -> Option<T>) -> Option<(T, Vec<u8>)> {
    let mut words = Words(message);
    compound(&mut words)?;
    words.word()?;
    words.is(3)?;
    words.is(SEQUENCE)?;
    words.bytes(32)?;
    words.is(PUTFH)?;
    words.opaque()?;
    let mut instead = message[..message.len() - words.0.len()].to_vec();
    let operation = read(&mut words)?;
    for word in [GETATTR, 1, NUMBER_OF_FILE] {
        add_word(&mut instead, word);
    }
    Some((operation, instead))
}

/// Returns the number of the file in the server's answer to the request that asks for it.
pub fn number_of_file(reply: &[u8]) -> Option<u64> {
    let (_, mut words) = sequence(reply, 3)?;
    file(&mut words)
}

/// Makes the answer to an operation on one file: its result, or the status of its failure.
pub fn reply_of_file(reply: &[u8], operation: u32, outcome: Result<Vec<u8>, u32>) -> Vec<u8> {
    let Some((head, _)) = sequence(reply, 3) else { return reply.to_vec() };
    let Some(status_at) = status_of_compound(reply) else { return reply.to_vec() };
    let mut answer = head.to_vec();
    let status = outcome.as_ref().err().copied().unwrap_or(0);
    answer[status_at..status_at + 4].copy_from_slice(&status.to_be_bytes());
    for word in [PUTFH, 0, operation, status] {
        add_word(&mut answer, word);
    }
    answer.extend(outcome.unwrap_or_default());
    answer
}

/// Reads the beginning of a good answer with so many results, with that of SEQUENCE. Returns the beginning and the rest.
fn sequence(reply: &[u8], results: u32) -> Option<(&[u8], Words<'_>)> {
    let mut words = Words(&reply[status_of_compound(reply)?..]);
    words.is(0)?;
    words.opaque()?;
    words.is(results)?;
    words.is(SEQUENCE)?;
    words.is(0)?;
    words.bytes(36)?;
    Some((&reply[..reply.len() - words.0.len()], words))
}

/// Returns the place of the status of a compound in an accepted answer.
fn status_of_compound(reply: &[u8]) -> Option<usize> {
    let mut words = Words(reply);
    words.word()?;
    words.is(1)?;
    words.is(0)?;
    words.word()?;
    words.opaque()?;
    words.is(0)?;
    Some(reply.len() - words.0.len())
}

/// The parts of an answer.
struct Parts<'a> {
    /// All before the status of the compound.
    head: &'a [u8],
    tag: &'a [u8],
    sequence: &'a [u8],
    files: (u64, u64),
}

fn parts(reply: &[u8]) -> Option<Parts<'_>> {
    let (head, rest) = reply.split_at_checked(status_of_compound(reply)?)?;
    let mut words = Words(rest);
    words.is(0)?;
    let tag = words.opaque()?;
    words.is(6)?;
    words.is(SEQUENCE)?;
    words.is(0)?;
    let sequence = words.bytes(36)?;
    let source = file(&mut words)?;
    words.is(SAVEFH)?;
    words.is(0)?;
    let target = file(&mut words)?;
    Some(Parts { head, tag, sequence, files: (source, target) })
}

/// Reads the number of a file, after its handle.
fn file(words: &mut Words<'_>) -> Option<u64> {
    for expected in [PUTFH, 0, GETATTR, 0] {
        words.is(expected)?;
    }
    let bitmap = words.word()?;
    for _ in 0..bitmap {
        words.word()?;
    }
    Words(words.opaque()?).long()
}

/// Returns the numbers of source and target in the server's answer.
pub fn files(reply: &[u8]) -> Option<(u64, u64)> {
    parts(reply).map(|parts| parts.files)
}

/// Makes the answer to the operation from that of the server, with the number of bytes or the status of the failure.
pub fn reply(reply: &[u8], call: &Call, outcome: Result<u64, u32>) -> Vec<u8> {
    let Some(Parts { head, tag, sequence, .. }) = parts(reply) else { return reply.to_vec() };
    let status = outcome.err().unwrap_or(0);
    let mut answer = head.to_vec();
    let mut words = |words: &[u32]| words.iter().for_each(|word| answer.extend(word.to_be_bytes()));
    words(&[status, u32::try_from(tag.len()).unwrap_or(0)]);
    answer.extend(tag);
    answer.resize(answer.len() + tag.len().next_multiple_of(4) - tag.len(), 0);
    let mut words = |words: &[u32]| words.iter().for_each(|word| answer.extend(word.to_be_bytes()));
    words(&[5, SEQUENCE, 0]);
    answer.extend(sequence);
    let mut words = |words: &[u32]| words.iter().for_each(|word| answer.extend(word.to_be_bytes()));
    words(&[PUTFH, 0, SAVEFH, 0, PUTFH, 0, if call.is_clone { CLONE } else { COPY }, status]);
    if let (false, Ok(count)) = (call.is_clone, outcome) {
        // No callback; all bytes are on the disk; consecutive, and not in the background.
        answer.extend(0_u32.to_be_bytes());
        answer.extend(count.to_be_bytes());
        for word in [2, 0, 0, 1, 1_u32] {
            answer.extend(word.to_be_bytes());
        }
    }
    answer
}
