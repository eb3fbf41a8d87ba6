// How every client of a TypeScript SDK ends: with its line and status 0, or with what went wrong and status 1.

const PATIENCE_SECONDS = 60;

/** Plays `main`, prints the line that it gives back, and has `close` end what is still open. */
export function play(main, close) {
  setTimeout(() => {
    console.log(`nothing for ${PATIENCE_SECONDS} s`);
    process.exit(1);
  }, PATIENCE_SECONDS * 1000).unref();

  main().then(
    async (line) => {
      console.log(line);
      await close();
    },
    (error) => {
      console.log(`${error.name}: ${String(error.message).slice(0, 600)}`);
      process.exit(1);
    },
  );
}
