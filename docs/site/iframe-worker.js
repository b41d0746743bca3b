// A browser gives no worker to a page that was opened as a file, and the search wants one: it runs in a hidden frame instead.
// The plugin `offline` asks for a script of this name, and would take it from a server elsewhere if there were none here.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true, srcdoc: "" });
      this.inside = new Promise((resolve) => this.frame.addEventListener("load", () => resolve(this.run(url)), { once: true }));
      document.body.append(this.frame);
    }

    run(url) {
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = Object.assign(inside.document.createElement("script"), { src: url });
      inside.document.body.append(script);
      return new Promise((resolve) => script.addEventListener("load", () => resolve(inside)));
    }

    async postMessage(data) {
      const inside = await this.inside;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
