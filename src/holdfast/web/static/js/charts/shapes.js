// Symbols that ECharts does not have.

export const STAR = "path://M0,-10 L2.4,-3.1 9.5,-3.1 3.8,1.2 5.9,8.1 0,3.9 -5.9,8.1 -3.8,1.2 -9.5,-3.1 -2.4,-3.1 Z";
export const CROSS = "path://M-5,-3.6 L-3.6,-5 0,-1.4 3.6,-5 5,-3.6 1.4,0 5,3.6 3.6,5 0,1.4 -3.6,5 -5,3.6 -1.4,0 Z";
