package beforehand.edge;

/** Runs the prompt encoder. */
interface Encoder extends AutoCloseable {
    /** Makes an encoder of a graph. */
    interface Factory {
        /** Throws whatever the runtime throws. */
        Encoder load(byte[] graph, Content content) throws Exception;
    }

    /** The rows, flat. Throws when it fails or was stopped. */
    float[] run(Features features, Stop stop) throws Exception;

    @Override
    void close();

    /** Lets another thread end a run, or keep it from beginning. */
    final class Stop {
        private boolean stopped;
        private Runnable terminate = () -> {};

        /** End it. */
        synchronized void now() {
            stopped = true;
            terminate.run();
        }

        /** What ends the run that is about to begin; false when it should not begin. */
        synchronized boolean attach(Runnable how) {
            terminate = how;
            return !stopped;
        }

        /** The run is over: there is nothing to end any more. */
        synchronized void detach() {
            terminate = () -> {};
        }
    }
}
