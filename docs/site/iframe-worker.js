// The search runs in a worker, and a browser starts none for a page from a disk: there a hidden frame replaces it.
if (location.protocol === "file:") {
  window.Worker = class {
    onmessage = null;
    onerror = null;
    onmessageerror = null;
    #waiting = [];
    #inside = null;
    #frame = document.createElement("iframe");

    constructor(address) {
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html><title>Search</title>";
      this.#frame.addEventListener("load", () => this.#run(new URL(address, document.baseURI)), { once: true });
      document.body.append(this.#frame);
    }

    #run(address) {
      const inside = this.#frame.contentWindow;
      // As with a worker, messages are copies, and an answer arrives later than the call that it answers.
      inside.postMessage = (data) => {
        const message = new MessageEvent("message", { data: structuredClone(data) });
        setTimeout(() => this.onmessage?.(message));
      };
      const script = inside.document.createElement("script");
      script.addEventListener("error", () => this.onerror?.(new ErrorEvent("error", { message: `${address}` })));
      script.addEventListener("load", () => {
        this.#inside = inside;
        this.#waiting.splice(0).forEach((data) => this.postMessage(data));
      });
      script.src = address;
      inside.document.body.append(script);
    }

    postMessage(data) {
      if (this.#inside === null) this.#waiting.push(data);
      else this.#inside.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
