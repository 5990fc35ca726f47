//! The MPI library, opened when a run has several processes: the program is built without it, runs where there is none, and takes
//! whichever is there. Open MPI and MPICH (and what is compatible with that: Intel MPI, MVAPICH, Cray) name the same functions and differ
//! in what handles are: addresses of symbols in the one, numbers in the other.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr::{null_mut, without_provenance_mut};

use crate::reduce::{Launcher, ReduceError};

/// A handle of either library: an address, or a number in its lower half.
type Handle = usize;

/// An operation that is under way.
pub(super) type Request = usize;

/// Calls come from one thread at a time.
const THREAD_SERIALIZED: c_int = 2;

/// Why there is no MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryError {
    /// No library is found; the launcher, and the names that were tried.
    Missing(Launcher, Vec<String>),
    /// A library lacks a function.
    Unknown(String, &'static str),
    /// The launcher started so many processes, the library knows another number: they do not belong together.
    OtherWorld {
        /// By the launcher.
        launched: usize,
        /// By the library.
        found: usize,
        /// The library.
        library: String,
    },
    /// Its start failed.
    Start(String),
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibraryError::Missing(launcher, names) => {
                write!(f, "started by {launcher}, but no MPI library is found ({})", names.join(", "))
            }
            LibraryError::Unknown(library, name) => write!(f, "{library} is no MPI library: it has no `{name}`"),
            LibraryError::OtherWorld { launched, found, library } => write!(
                f,
                "the launcher started {launched} processes, {library} knows of {found}: they do not belong together"
            ),
            LibraryError::Start(text) => write!(f, "MPI does not start: {text}"),
        }
    }
}

impl std::error::Error for LibraryError {}

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*);)*) => {
        /// The functions that are used, all with the result 0 for success.
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        impl Functions {
            fn find(library: &Opened) -> Result<Functions, LibraryError> {
                // SAFETY: these are the functions' types in the MPI standard, with handles as wide as the wider of the two kinds:
                // a number is passed in the lower half of its register.
                unsafe { Ok(Functions { $($field: std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(library.symbol($symbol)?),)* }) }
            }
        }
    };
}

functions! {
    init_thread = "MPI_Init_thread": fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize = "MPI_Finalize": fn();
    abort = "MPI_Abort": fn(Handle, c_int);
    rank = "MPI_Comm_rank": fn(Handle, *mut c_int);
    size = "MPI_Comm_size": fn(Handle, *mut c_int);
    set_errhandler = "MPI_Comm_set_errhandler": fn(Handle, Handle);
    error_string = "MPI_Error_string": fn(c_int, *mut c_char, *mut c_int);
    version = "MPI_Get_library_version": fn(*mut c_char, *mut c_int);
    allgather = "MPI_Allgather": fn(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle);
    iallgather = "MPI_Iallgather": fn(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle, *mut Request);
    isend = "MPI_Isend": fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Request);
    irecv = "MPI_Irecv": fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Request);
    test = "MPI_Test": fn(*mut Request, *mut c_int, *mut c_void);
    cancel = "MPI_Cancel": fn(*mut Request);
    request_free = "MPI_Request_free": fn(*mut Request);
}

/// A shared library. Never closed: its threads and exit handlers live as long as the program.
struct Opened {
    handle: *mut c_void,
    name: String,
}

impl Opened {
    fn open(name: &str) -> Option<Opened> {
        let path = CString::new(name).ok()?;
        // SAFETY: an MPI library's own start-up code runs, as it would if the program were linked with it. Its plug-ins look for its
        // symbols among the global ones.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        (!handle.is_null()).then(|| Opened { handle, name: name.to_owned() })
    }

    fn find(&self, symbol: &str) -> Option<*mut c_void> {
        let name = CString::new(symbol).ok()?;
        // SAFETY: the handle is open, the name ends with zero.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    fn symbol(&self, symbol: &'static str) -> Result<*mut c_void, LibraryError> {
        self.find(symbol).ok_or_else(|| LibraryError::Unknown(self.name.clone(), symbol))
    }
}

/// What is predefined.
struct Constants {
    world: Handle,
    byte: Handle,
    float: Handle,
    errors_return: Handle,
    /// An address.
    status_ignore: usize,
}

impl Constants {
    fn find(library: &Opened) -> Result<Constants, LibraryError> {
        let address = |symbol: &'static str| library.symbol(symbol).map(|at| at as Handle);
        if library.find("ompi_mpi_comm_world").is_none() {
            // MPICH's ABI, which those that are compatible with it promise to keep.
            return Ok(Constants {
                world: 0x4400_0000,
                byte: 0x4c00_010d,
                float: 0x4c00_040a,
                errors_return: 0x5400_0001,
                status_ignore: 1,
            });
        }
        Ok(Constants {
            world: address("ompi_mpi_comm_world")?,
            byte: address("ompi_mpi_byte")?,
            float: address("ompi_mpi_float")?,
            errors_return: address("ompi_mpi_errors_return")?,
            status_ignore: 0,
        })
    }
}

/// MPI at work in this process. Used by one thread at a time; the one that started it also ends it.
pub(super) struct Library {
    functions: Functions,
    constants: Constants,
    pub(super) rank: usize,
    pub(super) world: usize,
    /// What it says about itself.
    pub(super) version: String,
}

/// Libraries that a launcher's processes may want, the likeliest first.
fn candidates(launcher: Launcher) -> Vec<String> {
    const OPEN_MPI: [&str; 1] = ["libmpi.so.40"];
    const MPICH: [&str; 2] = ["libmpich.so.12", "libmpi.so.12"];
    const ANY: [&str; 2] = ["libmpi.so", "libmpi.dylib"];
    if let Ok(chosen) = std::env::var("TANDEM_MPI_LIBRARY") {
        return vec![chosen];
    }
    let (first, second) = match launcher {
        Launcher::Mpich => (&MPICH[..], &OPEN_MPI[..]),
        Launcher::OpenMpi | Launcher::Slurm => (&OPEN_MPI[..], &MPICH[..]),
    };
    first.iter().chain(second).chain(&ANY).map(|name| (*name).to_owned()).collect()
}

impl Library {
    /// Opens the library and joins the job.
    pub(super) fn start(launcher: Launcher, launched: usize) -> Result<Library, LibraryError> {
        let names = candidates(launcher);
        let opened = names.iter().find_map(|name| Opened::open(name));
        let opened = opened.ok_or(LibraryError::Missing(launcher, names))?;
        let (functions, constants) = (Functions::find(&opened)?, Constants::find(&opened)?);
        let mut library = Library { functions, constants, rank: 0, world: 0, version: opened.name };
        let (mut provided, mut rank, mut world) = (0, 0, 0);
        // SAFETY: MPI starts once in a process, here; the pointers are to values of this function.
        let started = unsafe {
            let Functions { init_thread, rank: comm_rank, size: comm_size, set_errhandler, .. } = library.functions;
            let Constants { world: comm, errors_return, .. } = library.constants;
            [
                init_thread(null_mut(), null_mut(), THREAD_SERIALIZED, &mut provided),
                set_errhandler(comm, errors_return),
                comm_rank(comm, &mut rank),
                comm_size(comm, &mut world),
            ]
        };
        if let Some(&code) = started.iter().find(|code| **code != 0) {
            return Err(LibraryError::Start(library.error_text(code)));
        }
        if provided < THREAD_SERIALIZED {
            let text = format!("{} may be called by one thread only", library.version_text());
            return Err(LibraryError::Start(text));
        }
        (library.rank, library.world) = (rank as usize, world as usize);
        library.version = library.version_text();
        if library.world != launched {
            let (found, library) = (library.world, library.version);
            return Err(LibraryError::OtherWorld { launched, found, library });
        }
        Ok(library)
    }

    fn version_text(&self) -> String {
        // MPICH's are up to 8192 long.
        let (mut text, mut length) = (vec![0u8; 8193], 0);
        // SAFETY: the buffer is as long as the longest text that the libraries promise.
        unsafe { (self.functions.version)(text.as_mut_ptr().cast(), &mut length) };
        // The first line, up to what is about its package.
        let text = c_text(&text);
        let first = text.lines().next().unwrap_or_default();
        first.split(',').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn error_text(&self, code: c_int) -> String {
        let (mut text, mut length) = (vec![0u8; 1025], 0);
        // SAFETY: the buffer is as long as the longest text that the libraries promise.
        unsafe { (self.functions.error_string)(code, text.as_mut_ptr().cast(), &mut length) };
        c_text(&text)
    }

    fn checked(&self, code: c_int) -> Result<(), ReduceError> {
        if code == 0 { Ok(()) } else { Err(ReduceError::Library(self.error_text(code))) }
    }

    /// As many bytes of each rank, by rank; waits for all of them.
    pub(super) fn gather(&self, own: &[u8]) -> Result<Vec<u8>, ReduceError> {
        let mut all = vec![0; own.len() * self.world];
        let (count, byte, comm) = (own.len() as c_int, self.constants.byte, self.constants.world);
        // SAFETY: both buffers are as long as is said, and live until the call returns.
        let code = unsafe {
            (self.functions.allgather)(own.as_ptr().cast(), count, byte, all.as_mut_ptr().cast(), count, byte, comm)
        };
        self.checked(code).map(|()| all)
    }

    /// Begins to gather `own` of every rank into `all`.
    ///
    /// # Safety
    ///
    /// Both stay where they are, and `all` is left alone, until [`Library::is_done`] says so.
    pub(super) unsafe fn start_gather(&self, own: &[u8], all: &mut [u8]) -> Result<Request, ReduceError> {
        let (mut request, count) = (0, own.len() as c_int);
        let (byte, comm) = (self.constants.byte, self.constants.world);
        // SAFETY: lengths are right; the caller keeps the buffers.
        let code = unsafe {
            let to = all.as_mut_ptr().cast();
            (self.functions.iallgather)(own.as_ptr().cast(), count, byte, to, count, byte, comm, &mut request)
        };
        self.checked(code).map(|()| request)
    }

    /// Begins to send a part of a sum to a rank.
    ///
    /// # Safety
    ///
    /// As for [`Library::start_gather`].
    pub(super) unsafe fn start_send_values(&self, values: &[f32], to: usize, tag: u16) -> Result<Request, ReduceError> {
        let (mut request, count, tag) = (0, values.len() as c_int, FIRST_TAG + c_int::from(tag));
        let Constants { float, world, .. } = self.constants;
        // SAFETY: the length is right; the caller keeps the values.
        let code = unsafe {
            (self.functions.isend)(values.as_ptr().cast(), count, float, to as c_int, tag, world, &mut request)
        };
        self.checked(code).map(|()| request)
    }

    /// Begins to receive a part of a sum.
    ///
    /// # Safety
    ///
    /// As for [`Library::start_gather`].
    pub(super) unsafe fn start_receive_values(
        &self,
        values: &mut [f32],
        from: usize,
        tag: u16,
    ) -> Result<Request, ReduceError> {
        let (mut request, count, tag) = (0, values.len() as c_int, FIRST_TAG + c_int::from(tag));
        let Constants { float, world, .. } = self.constants;
        // SAFETY: the length is right; the caller keeps the values and leaves them alone.
        let code = unsafe {
            (self.functions.irecv)(values.as_mut_ptr().cast(), count, float, from as c_int, tag, world, &mut request)
        };
        self.checked(code).map(|()| request)
    }

    /// Begins to send bytes to a rank.
    ///
    /// # Safety
    ///
    /// As for [`Library::start_gather`].
    pub(super) unsafe fn start_send(&self, bytes: &[u8], to: usize) -> Result<Request, ReduceError> {
        let (mut request, count) = (0, bytes.len() as c_int);
        let (byte, comm) = (self.constants.byte, self.constants.world);
        // SAFETY: the length is right; the caller keeps the buffer.
        let code =
            unsafe { (self.functions.isend)(bytes.as_ptr().cast(), count, byte, to as c_int, TAG, comm, &mut request) };
        self.checked(code).map(|()| request)
    }

    /// Begins to receive bytes of a rank.
    ///
    /// # Safety
    ///
    /// As for [`Library::start_gather`].
    pub(super) unsafe fn start_receive(&self, bytes: &mut [u8], from: usize) -> Result<Request, ReduceError> {
        let (mut request, count) = (0, bytes.len() as c_int);
        let (byte, comm) = (self.constants.byte, self.constants.world);
        // SAFETY: the length is right; the caller keeps the buffer.
        let code = unsafe {
            (self.functions.irecv)(bytes.as_mut_ptr().cast(), count, byte, from as c_int, TAG, comm, &mut request)
        };
        self.checked(code).map(|()| request)
    }

    /// Whether an operation is done; also drives all of them.
    pub(super) fn is_done(&self, request: &mut Request) -> Result<bool, ReduceError> {
        let (mut done, status) = (0, without_provenance_mut(self.constants.status_ignore));
        // SAFETY: the request is one that was begun and was not done yet.
        let code = unsafe { (self.functions.test)(request, &mut done, status) };
        self.checked(code).map(|()| done != 0)
    }

    /// Gives an operation up that nobody will answer.
    pub(super) fn give_up(&self, mut request: Request) {
        // SAFETY: as above; its result does not matter any more.
        unsafe {
            (self.functions.cancel)(&mut request);
            (self.functions.request_free)(&mut request);
        }
    }

    /// Leaves the job in good order.
    pub(super) fn finish(&self) {
        // SAFETY: nothing is called after it.
        unsafe { (self.functions.finalize)() };
    }

    /// Ends all processes of the job.
    pub(super) fn abort(&self, code: u8) -> ! {
        // SAFETY: may be called at any time.
        unsafe { (self.functions.abort)(self.constants.world, c_int::from(code)) };
        std::process::exit(code.into());
    }
}

/// Signs of life.
const TAG: c_int = 1;
/// The first tag of parts of sums.
const FIRST_TAG: c_int = 2;

fn c_text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).map_or(String::new(), |text| text.to_string_lossy().into_owned())
}
