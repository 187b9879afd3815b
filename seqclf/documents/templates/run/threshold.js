(() => {
  const holder = document.getElementById("threshold-points");
  const { points, texts, left, width, bottom, height } = JSON.parse(holder.textContent);
  const slider = document.getElementById("threshold-slider");
  const show = (name, text) => { document.getElementById("threshold-" + name).textContent = text; };
  const share = (value) => (100 * value).toFixed(value > 0 && value < 0.01 ? 2 : 1) + "%";
  const place = (axes, x, y) => {
    for (const dot of document.querySelectorAll(`.plot i.dot[data-axes="${axes}"]`)) {
      dot.hidden = y === null; // no alerts, so no precision
      dot.style.left = 100 * (left + x * width) + "%";
      dot.style.top = 100 * (1 - bottom - y * height) + "%";
    }
  };
  const move = () => {
    const [, recall, precision, alerts, falseAlarms] = points[slider.value];
    const precisionText = precision === null ? "-" : share(precision);
    show("value", texts[slider.value]);
    show("recall", share(recall));
    show("precision", precisionText);
    show("alerts", share(alerts));
    slider.setAttribute("aria-valuetext",
      `threshold ${texts[slider.value]}: recall ${share(recall)}, precision ${precisionText}, alerts ${share(alerts)}`);
    place("precision-recall", recall, precision);
    place("roc", falseAlarms, recall);
  };
  slider.addEventListener("input", move);
  move();
})();
