// SPDX-License-Identifier: Apache-2.0
//
// Values of the options of `regard plan`, and how rates and times are printed. The parse_ functions throw UsageError.
// Read next: plan.cpp.
#pragma once

#include <string>
#include <string_view>

namespace regard::program {

// Bytes per second: 10Gb, 10Gb/s, 10Gbit/s (bits), 1.25GB, 1.25GB/s (bytes). k, M, G and T are powers of 1000.
double parse_link(std::string_view option, std::string_view text);
// Operations per second: 5e12, 5T, 800GFLOP/s.
double parse_flops(std::string_view option, std::string_view text);
// 50us, 2ms, 0.001s.
double parse_seconds(std::string_view option, std::string_view text);

// "3.12 s", "250 ms", "50 us".
std::string seconds_text(double seconds);
// A rate with its prefix, "1.25 G" or "800 M", to be followed by the unit.
std::string rate_text(double rate);

}  // namespace regard::program
