package varvite.benchmarks;

import java.io.EOFException;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URL;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Local files as `objects:///path`, each operation counted, and delayed, as the requests of an object store.
 *
 * With `fs.objects.endpoint`, the URL of a bucket that anybody may read and write, their contents are objects there:
 * what is written is PUT when it gets its final name, what is read comes with a GET. Then these two take what the server
 * takes instead of the delay. The local files are only asked for names and lengths, as if that cost nothing.
 *
 * Whatever is in doubt counts in favour of the caller: closing a new file is one PUT however large it is, opening one
 * is one GET, whether it exists one HEAD, a directory needs no request. A rename is counted, but neither delayed nor a
 * request: Spark has a writer for S3 that does without (AbortableStreamBasedCheckpointFileManager, which is not part
 * of PySpark). Only what a caller asks for counts, not what the local file system does for it.
 *
 * Compiled by Janino, so without lambdas and generics' diamonds.
 */
public class ObjectFileSystem extends RawLocalFileSystem {
    private static final URI ROOT = URI.create("objects:///");
    private static final ConcurrentHashMap<String, AtomicLong> COUNTS = new ConcurrentHashMap<String, AtomicLong>();
    private static final ThreadLocal<int[]> DEPTH = new ThreadLocal<int[]>();
    private static final int BUFFER_BYTES = 1 << 17;
    private long latencyMs;
    private String endpoint = "";

    /** Lines "batch|background request file requests|bytes number", since the JVM began. */
    public static String counts() {
        StringBuilder text = new StringBuilder();
        Iterator entries = COUNTS.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            text.append(entry.getKey()).append(' ').append(((AtomicLong) entry.getValue()).get()).append('\n');
        }
        return text.toString();
    }

    @Override
    public URI getUri() {
        return ROOT;
    }

    @Override
    public String getScheme() {
        return "objects";
    }

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        latencyMs = conf.getLong("fs.objects.latency.ms", 0L);
        endpoint = conf.get("fs.objects.endpoint", "");
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        boolean outer = enter();
        try {
            if (outer && !endpoint.isEmpty()) {
                long length = super.getFileStatus(path).getLen(); // a missing file is an error now
                count("GET", path, length);
                return new FSDataInputStream(new Fetched(endpoint + path.toUri().getPath(), length));
            }
            if (outer) {
                request("GET", path, pathToFile(path).length());
            }
            return super.open(path, bufferSize);
        } finally {
            leave();
        }
    }

    @Override
    public FSDataOutputStream create(
            Path path, boolean overwrite, int bufferSize, short replication, long blockSize, Progressable progress)
            throws IOException {
        boolean outer = enter();
        try {
            FSDataOutputStream made = super.create(path, overwrite, bufferSize, replication, blockSize, progress);
            return outer ? new Written(this, path, made) : made;
        } finally {
            leave();
        }
    }

    @Override
    public FSDataOutputStream create(
            Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication, long blockSize,
            Progressable progress)
            throws IOException {
        boolean outer = enter();
        try {
            FSDataOutputStream made =
                super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
            return outer ? new Written(this, path, made) : made;
        } finally {
            leave();
        }
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
        boolean outer = enter();
        try {
            if (outer) {
                count("RENAME", to, pathToFile(from).length());
            }
            boolean renamed = super.rename(from, to);
            if (outer && renamed && isTemporary(from) && pathToFile(to).isFile()) {
                upload(to);
            }
            return renamed;
        } finally {
            leave();
        }
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        boolean outer = enter();
        try {
            if (outer) {
                request("DELETE", path, 0L);
            }
            return super.delete(path, recursive);
        } finally {
            leave();
        }
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        boolean outer = enter();
        try {
            if (outer) {
                request("LIST", path, 0L);
            }
            return super.listStatus(path);
        } finally {
            leave();
        }
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        boolean outer = enter();
        try {
            if (outer) {
                request("HEAD", path, 0L);
            }
            return super.getFileStatus(path);
        } finally {
            leave();
        }
    }

    @Override
    public boolean mkdirs(Path path) throws IOException {
        enter();
        try {
            return super.mkdirs(path);
        } finally {
            leave();
        }
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        enter();
        try {
            return super.mkdirs(path, permission);
        } finally {
            leave();
        }
    }

    private static boolean enter() {
        int[] depth = (int[]) DEPTH.get();
        if (depth == null) {
            depth = new int[1];
            DEPTH.set(depth);
        }
        depth[0] = depth[0] + 1;
        return depth[0] == 1;
    }

    private static void leave() {
        int[] depth = (int[]) DEPTH.get();
        depth[0] = depth[0] - 1;
    }

    void request(String kind, Path path, long bytes) throws IOException {
        count(kind, path, bytes);
        if (latencyMs > 0L) {
            try {
                Thread.sleep(latencyMs);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new java.io.InterruptedIOException("interrupted in a request");
            }
        }
    }

    private static void count(String kind, Path path, long bytes) {
        boolean background = Thread.currentThread().getName().contains("maintenance");
        String name = (background ? "background " : "batch ") + kind + " " + kindOf(path);
        add(name + " requests", 1L);
        add(name + " bytes", bytes);
    }

    private static void add(String name, long number) {
        AtomicLong known = (AtomicLong) COUNTS.get(name);
        if (known == null) {
            COUNTS.putIfAbsent(name, new AtomicLong());
            known = (AtomicLong) COUNTS.get(name);
        }
        known.addAndGet(number);
    }

    private static String kindOf(Path path) {
        String whole = path.toString();
        if (!whole.contains("/state/")) {
            return "logs";
        }
        if (whole.contains(".changelog")) {
            return "changelog";
        }
        return whole.contains(".zip") ? "snapshot" : "state";
    }

    /** Spark writes under such a name first; with the writer for S3 the object would only get its final one. */
    private static boolean isTemporary(Path path) {
        return path.getName().startsWith(".") && path.getName().endsWith(".tmp");
    }

    /** A closed file: a PUT; if that is to be a real one, not before it has its final name. */
    void written(Path path, long bytes) throws IOException {
        if (endpoint.isEmpty()) {
            request("PUT", path, bytes);
            return;
        }
        count("PUT", path, bytes);
        if (!isTemporary(path)) {
            upload(path);
        }
    }

    private void upload(Path path) throws IOException {
        if (endpoint.isEmpty()) {
            return;
        }
        HttpURLConnection put = (HttpURLConnection) new URL(endpoint + path.toUri().getPath()).openConnection();
        put.setRequestMethod("PUT");
        put.setDoOutput(true);
        put.setRequestProperty("x-amz-acl", "public-read-write"); // or nobody could read what nobody has signed
        put.setFixedLengthStreamingMode(pathToFile(path).length());
        InputStream from = new FileInputStream(pathToFile(path));
        try {
            OutputStream to = put.getOutputStream();
            byte[] buffer = new byte[BUFFER_BYTES];
            int count = from.read(buffer);
            while (count >= 0) {
                to.write(buffer, 0, count);
                count = from.read(buffer);
            }
            to.close();
        } finally {
            from.close();
        }
        if (put.getResponseCode() != 200) {
            throw new IOException("PUT of " + path + " was answered with " + put.getResponseCode());
        }
        drain(put.getInputStream());
    }

    /** A connection is used again only if its answer was read to the end. */
    private static void drain(InputStream answer) throws IOException {
        try {
            byte[] buffer = new byte[1024];
            while (answer.read(buffer) >= 0) {
            }
        } finally {
            answer.close();
        }
    }

    /** An object, read from where the reader is to its end; another place is another request. */
    private static class Fetched extends FSInputStream {
        private final String url;
        private final long length;
        private long position;
        private InputStream body;

        Fetched(String url, long length) {
            this.url = url;
            this.length = length;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] target, int offset, int count) throws IOException {
            if (count == 0) {
                return 0;
            }
            if (position >= length) {
                return -1;
            }
            if (body == null) {
                HttpURLConnection get = (HttpURLConnection) new URL(url).openConnection();
                if (position > 0L) {
                    get.setRequestProperty("Range", "bytes=" + position + "-");
                }
                if (get.getResponseCode() / 100 != 2) {
                    throw new IOException("GET of " + url + " was answered with " + get.getResponseCode());
                }
                body = get.getInputStream();
            }
            int read = body.read(target, offset, count);
            if (read < 0) {
                throw new EOFException(url + " ends at " + position + " instead of " + length);
            }
            position += (long) read;
            return read;
        }

        @Override
        public void seek(long target) throws IOException {
            if (target != position) {
                close();
                position = target;
            }
        }

        @Override
        public long getPos() {
            return position;
        }

        @Override
        public boolean seekToNewSource(long target) {
            return false;
        }

        @Override
        public void close() throws IOException {
            if (body != null) {
                if (position >= length) {
                    drain(body);
                } else {
                    body.close();
                }
                body = null;
            }
        }
    }

    /** A file that becomes an object when it is closed. */
    private static class Written extends FSDataOutputStream {
        private final ObjectFileSystem owner;
        private final Path path;
        private boolean closed;

        Written(ObjectFileSystem owner, Path path, FSDataOutputStream made) throws IOException {
            super(made, null);
            this.owner = owner;
            this.path = path;
        }

        @Override
        public void close() throws IOException {
            boolean first = !closed;
            closed = true;
            super.close();
            if (first) {
                owner.written(path, getPos());
            }
        }
    }
}
