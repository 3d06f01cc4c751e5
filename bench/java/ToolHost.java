import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools one after the other in a JVM that is warm already, each as if it had one of its own.
 *
 * Arguments: jars and directories whose classes are loaded anew for every call, because tools keep counts in static fields.
 * A call comes on standard input (how many texts; the class, a directory with more classes or nothing, what the tool is given
 * to read, its arguments) and leaves on standard output (exit code, what it printed on either stream); texts are UTF-8 behind
 * their length. The end of the input ends the JVM.
 */
public final class ToolHost {
    private static final String MAIN = "main";
    private static final long UNWINDING_MS = 5_000;

    private final URL[] anew;
    private final List<Runnable> shutdownHooks = new ArrayList<>();
    private volatile CompletableFuture<Integer> exited = new CompletableFuture<>();
    private volatile CountDownLatch answered = new CountDownLatch(1);

    private ToolHost(URL[] anew) {
        this.anew = anew;
    }

    public static void main(String[] arguments) throws Exception {
        URL[] anew = new URL[arguments.length];
        for (int index = 0; index < arguments.length; index++) {
            anew[index] = Path.of(arguments[index]).toUri().toURL();
        }
        new ToolHost(anew).serve(new DataInputStream(System.in), new DataOutputStream(System.out));
    }

    private void serve(DataInputStream calls, DataOutputStream answers) throws Exception {
        Exit.setExitProcedure(this::exit);
        Exit.setHaltProcedure(this::exit);
        Exit.setShutdownHookAdder((name, hook) -> shutdownHooks.add(hook));
        while (true) {
            int count;
            try {
                count = calls.readInt();
            } catch (EOFException done) {
                Runtime.getRuntime().halt(0);
                return;
            }
            String mainClass = readText(calls);
            String classes = readText(calls);
            String given = readText(calls);
            String[] arguments = new String[count - 3];
            for (int index = 0; index < arguments.length; index++) {
                arguments[index] = readText(calls);
            }
            call(mainClass, classes, given, arguments, answers);
        }
    }

    private void call(String mainClass, String classes, String given, String[] arguments, DataOutputStream answers)
            throws Exception {
        List<URL> loaded = new ArrayList<>(List.of(anew));
        if (!classes.isEmpty()) {
            loaded.add(Path.of(classes).toUri().toURL());
        }
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complaints = new ByteArrayOutputStream();
        InputStream usualInput = System.in;
        System.setIn(new ByteArrayInputStream(given.getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complaints, true, StandardCharsets.UTF_8));
        exited = new CompletableFuture<>();
        answered = new CountDownLatch(1);
        shutdownHooks.clear();
        int code;
        ClassLoader stays = ToolHost.class.getClassLoader();
        try (URLClassLoader loader = new URLClassLoader(loaded.toArray(new URL[0]), stays)) {
            Thread tool = started(loader, mainClass, arguments);
            code = exited.get();
            for (Runnable hook : shutdownHooks) {
                hook.run();
            }
            System.out.flush();
            System.err.flush();
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
            answered.countDown();
            tool.join(UNWINDING_MS);
        } finally {
            System.setIn(usualInput);
        }
        answers.writeInt(code);
        writeText(answers, printed);
        writeText(answers, complaints);
        answers.flush();
    }

    private Thread started(ClassLoader loader, String mainClass, String[] arguments) {
        CompletableFuture<Integer> ended = exited;
        Thread tool = new Thread(() -> {
            try {
                loader.loadClass(mainClass).getMethod(MAIN, String[].class).invoke(null, (Object) arguments);
                ended.complete(0);
            } catch (InvocationTargetException thrown) {
                if (!ended.isDone()) {
                    thrown.getCause().printStackTrace();
                    ended.complete(1);
                }
            } catch (ReflectiveOperationException wrong) {
                wrong.printStackTrace();
                ended.complete(1);
            }
        }, MAIN);
        tool.setContextClassLoader(loader);
        tool.setDaemon(true);
        tool.start();
        return tool;
    }

    /**
     * Nothing that comes after the call may show, so the caller waits here until what it printed is taken. Then it is unwound:
     * a JVM that ends closes a tool's connections, and this one does not.
     */
    private void exit(int status, String message) {
        exited.complete(status);
        try {
            answered.await();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        throw new Exited();
    }

    private static String readText(DataInputStream from) throws IOException {
        byte[] text = new byte[from.readInt()];
        from.readFully(text);
        return new String(text, StandardCharsets.UTF_8);
    }

    private static void writeText(DataOutputStream to, ByteArrayOutputStream text) throws IOException {
        to.writeInt(text.size());
        text.writeTo(to);
    }

    private static final class Exited extends Error {
        private static final long serialVersionUID = 1L;
    }
}
