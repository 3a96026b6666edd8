"use strict";

/* One ramp of even steps in lightness along the blue-yellow axis, in OKLCH: it reads the same to every eye and in grey.
   On paper a heavy weight is dark, at night it is bright. */

function oklchToRgb(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
    -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
    -0.0041960863 * long - 0.7034186147 * medium + 1.707614701 * short,
  ];
  return linear.map((value) => {
    const encoded = value <= 0.0031308 ? 12.92 * value : 1.055 * Math.max(value, 0) ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, encoded)));
  });
}

function makeRamp(dark) {
  return Array.from({ length: 256 }, (_, index) => {
    const strength = index / 255;
    const swell = 0.05 * Math.sin(Math.PI * strength); // colour at its fullest halfway, within what a screen can show
    return dark
      ? oklchToRgb(0.23 + 0.7 * strength, 0.025 + swell + 0.065 * strength, 275 - 170 * strength)
      : oklchToRgb(0.97 - 0.7 * strength, 0.012 + swell + 0.07 * strength, 105 + 165 * strength ** 0.75);
  });
}

/* Colour follows the root of the weight, so that a diffuse head is visible too; the legend's ticks say so. */
function colourOf(ramp, weight) {
  return ramp[Math.min(255, Math.round(255 * Math.sqrt(weight)))];
}
