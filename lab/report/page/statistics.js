// Means and 95 % intervals of the t distribution, by the same formulas as the study's (docs/guides/study.md).

function mean_of(numbers) {
  let sum = 0;
  for (const one of numbers) sum += one - numbers[0];
  return numbers[0] + sum / numbers.length;
}

// {mean, low, high}; without low and high for fewer than two numbers.
function summary_of(numbers) {
  const n = numbers.length, mean = mean_of(numbers);
  if (n < 2) return {mean, n};
  let sum = 0;
  for (const one of numbers) sum += (one - mean) * (one - mean);
  const half = t_975(n - 1) * Math.sqrt(sum / (n - 1)) / Math.sqrt(n);
  return {mean, low: mean - half, high: mean + half, n};
}

function median_of(numbers) {
  const sorted = Array.from(numbers).sort((a, b) => a - b), half = sorted.length >> 1;
  if (sorted.length % 2 === 1 || sorted[half - 1] === sorted[half]) return sorted[half];
  return sorted[half - 1] + (sorted[half] - sorted[half - 1]) / 2;
}

const quantiles = new Map();

// The quantile .975 of the t distribution.
function t_975(degrees) {
  if (!quantiles.has(degrees)) {
    let low = 1.9, high = 12.8;
    for (;;) {
      const middle = low + (high - low) / 2;
      if (middle <= low || middle >= high) {
        quantiles.set(degrees, middle);
        break;
      }
      if (two_sided_p(middle, degrees) > 0.05)
        low = middle;
      else
        high = middle;
    }
  }
  return quantiles.get(degrees);
}

// P(|T| > t): finite sums for whole degrees (Abramowitz and Stegun, 26.7.3 and 26.7.4).
function two_sided_p(t, degrees) {
  const angle = Math.atan2(t, Math.sqrt(degrees));
  const cos2 = Math.cos(angle) ** 2;
  let term = degrees % 2 === 1 ? Math.cos(angle) : 1, sum = degrees === 1 ? 0 : term;
  for (let k = degrees % 2 === 1 ? 3 : 2; k <= degrees - 2; k += 2) {
    term *= cos2 * (k - 1) / k;
    sum += term;
  }
  const inside = degrees % 2 === 1 ? (2 / Math.PI) * (angle + Math.sin(angle) * sum) : Math.sin(angle) * sum;
  return 1 - inside;
}
