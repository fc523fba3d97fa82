// SPDX-License-Identifier: Apache-2.0
//
// Contains only the headers that every test includes, which are precompiled with this file for all tests
// (CMakeLists.txt).
