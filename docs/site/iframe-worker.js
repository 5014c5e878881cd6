// The search runs in a worker, and a browser starts none for a page from a disk: there a hidden frame stands in for it.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    onmessage = null;
    onerror = null;
    onmessageerror = null;
    #waiting = [];
    #ready = false;
    #frame = document.createElement("iframe");

    constructor(address) {
      super();
      const script = document.createElement("script");
      script.src = new URL(address, document.baseURI);
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html><title>Search</title>";
      this.#frame.addEventListener("load", () => {
        const inside = this.#frame.contentWindow;
        inside.postMessage = (data) => this.#tell(new MessageEvent("message", { data }));
        script.addEventListener("error", () => this.#tell(new ErrorEvent("error", { message: script.src })));
        script.addEventListener("load", () => {
          this.#ready = true;
          this.#waiting.splice(0).forEach((data) => this.postMessage(data));
        });
        inside.document.body.append(script);
      }, { once: true });
      document.body.append(this.#frame);
    }

    postMessage(data) {
      if (this.#ready) this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      else this.#waiting.push(data);
    }

    terminate() {
      this.#frame.remove();
    }

    #tell(event) {
      this[`on${event.type}`]?.(event);
      this.dispatchEvent(event);
    }
  };
}
