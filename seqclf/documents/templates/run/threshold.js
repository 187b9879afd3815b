(() => {
  const holder = document.getElementById("threshold-points");
  const { points, texts, left, width, bottom, height } = JSON.parse(holder.textContent);
  const slider = document.getElementById("threshold-slider");
  const show = (name, text) => { document.getElementById("threshold-" + name).textContent = text; };
  const share = (value) => (100 * value).toFixed(value > 0 && value < 0.01 ? 2 : 1) + "%";
  const dot = document.querySelector(".plot i.dot");
  const move = () => {
    const [, recall, precision, alerts] = points[slider.value];
    const precisionText = precision === null ? "-" : share(precision);
    show("value", texts[slider.value]);
    show("recall", share(recall));
    show("precision", precisionText);
    show("alerts", share(alerts));
    slider.setAttribute("aria-valuetext",
      `threshold ${texts[slider.value]}: recall ${share(recall)}, precision ${precisionText}, alerts ${share(alerts)}`);
    dot.hidden = precision === null; // no alerts, so no precision
    dot.style.left = 100 * (left + recall * width) + "%";
    dot.style.top = 100 * (1 - bottom - precision * height) + "%";
  };
  slider.addEventListener("input", move);
  move();
})();
