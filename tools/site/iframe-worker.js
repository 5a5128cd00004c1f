/* The search of the site runs in a Worker, which browsers refuse to pages that were opened as files. There a hidden frame
   does its work: the script runs in it as it would in a Worker, and messages go between the two windows. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      this.inside = inside;
      inside.document.open();
      inside.document.write(`<!DOCTYPE html><script>
        window.postMessage = message => parent.postMessage({fromSearch: message}, "*");
        window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script");
          script.src = url;
          script.onload = done;
          script.onerror = failed;
          document.body.appendChild(script);
        })), Promise.resolve());
        <\/script><body><script src="${url}"><\/script></body>`);
      this.ready = new Promise(done => inside.addEventListener("load", done));
      inside.document.close();
      window.addEventListener("message", event => {
        if (event.source !== inside || !event.data || !("fromSearch" in event.data)) return;
        const copy = new MessageEvent("message", {data: event.data.fromSearch});
        this.dispatchEvent(copy);
        if (this.onmessage) this.onmessage(copy);
      });
    }

    postMessage(message) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", {data: message})));
    }

    terminate() {}
  };
}
