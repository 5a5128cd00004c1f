// Elementary functions computed with + - * / only, so that every device and every C library gives the same bits.
//
// What is trained depends on their last bits: the data that a problem draws, losses, learning rates, RegTop-k's scores.
// Libraries differ there, and one library by the type of processor.
#pragma once

namespace sparsewire {

// Like std::exp and std::log: within 0.7 units in the last place where the result is a normal number.
double portable_exp(double x) noexcept;
// REQUIRES: x is not negative (NaN gives NaN).
double portable_log(double x) noexcept;
// log(1 + x). REQUIRES: x >= -1.
double portable_log1p(double x) noexcept;
// x^y within 3 units in the last place where |y log x| < 700. REQUIRES: x > 0.
double portable_pow(double x, double y) noexcept;
// cos(2 pi x) within 1 unit in the last place, also near its zeros, since x is in turns. REQUIRES: |x| < 2^50.
double portable_cos_of_turns(double x) noexcept;

// ENSURES: within 1e-15 of tanh(x), monotone up to rounding; 1 for x >= 20. REQUIRES: x >= 0 (NaN gives 1).
double portable_tanh(double x) noexcept;

}  // namespace sparsewire
